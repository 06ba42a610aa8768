"""The tables of `gpuplan sandbox run`: rows are short, and what they cut off follows in full."""

from cli.tables import pod_table
from sandbox.settle import PodReport

LONG = "GPU 0 of n1 is held whole by a pod; " * 4 + "add a node"


def report(name: str, message: str) -> PodReport:
    reason = "Blocked" if message else ""
    return PodReport(namespace="default", name=name, phase="Pending", node="", reason=reason, message=message)


def test_a_long_sentence_stands_once_in_full() -> None:
    text = pod_table([report(name, LONG) for name in "abcde"])
    rows, _, full = text.partition("\n\n")
    assert all(row.endswith(" …") for row in rows.splitlines()[1:])
    head, *words = full.splitlines()
    assert head == "default/a, default/b, default/c and 2 more: Blocked"
    assert " ".join(word.strip() for word in words) == LONG


def test_short_sentences_need_no_more() -> None:
    assert pod_table([report("a", "add a node"), report("b", "")]).count("\n") == 2
