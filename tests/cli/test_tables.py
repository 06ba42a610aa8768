"""The tables of `gpuplan sandbox run`: rows are short, and what they cut off follows in full."""

from cli.tables import wrapped_table
from sandbox.cli.tables import pod_table
from sandbox.settle import PodReport

LONG = "GPU 0 of n1 is held whole by a pod; " * 4 + "add a node"


def report(name: str, message: str) -> PodReport:
    reason = "Blocked" if message else ""
    return PodReport(namespace="default", name=name, phase="Pending", node="", reason=reason, message=message)


def test_a_long_sentence_is_printed_once_in_full() -> None:
    text = pod_table([report(name, LONG) for name in "abcde"])
    rows, _, full = text.partition("\n\n")
    assert all(row.endswith(" …") for row in rows.splitlines()[1:])
    head, *words = full.splitlines()
    assert head == "default/a, default/b, default/c and 2 more: Blocked"
    assert " ".join(word.strip() for word in words) == LONG


def test_short_sentences_need_no_more() -> None:
    assert pod_table([report("a", "add a node"), report("b", "")]).count("\n") == 2


def test_the_last_column_is_broken_to_the_width() -> None:
    header, rows = ("NAME", "MESSAGE"), [("a", LONG), ("b", ""), ("a-long-name", "x" * 90)]

    lines = wrapped_table(header, rows, 80).splitlines()

    assert max(len(line) for line in lines if "x" * 90 not in line) <= 80
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["NAME", "a", "b", "a-long-name"]
    assert " ".join(line[13:] for line in lines[1:4]).split() == LONG.split()
    narrow = wrapped_table(header, [("n" * 90, LONG)], 80).splitlines()
    assert len(narrow) > 2  # some room is left, however narrow
