"""Numbers and names as messages print them, and the answer that explanations return.

Takes counts, nouns and names, returns pieces of a sentence. Decides nothing, and does not know why a pod waits.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from controller.model.reasons import UnplacedReason
from partitioning.resources import mig_resource

_GIB = 2**30
_NAMED = 3
"""How many things of one sort a sentence names."""
UNNAMED_POD = "a pod not yet identified"
"""A holder that the status does not name."""


class Answer(NamedTuple):
    """Why a pod waits: `message` for its owner, `detail` with names and numbers of the moment for administrators."""

    reason: UnplacedReason
    message: str
    detail: str = ""


def counted(number: float, noun: str) -> str:
    """`1 node`, `2 nodes`, `0.5 CPUs`."""
    return f"{number:.12g} {noun}" + ("" if number == 1 else "s")


def spelled(wants: Iterable[tuple[str, int]]) -> str:
    """`2 nvidia.com/mig-1g.5gb and 1 nvidia.com/mig-3g.20gb`."""
    return " and ".join(f"{count} {resource}" for resource, count in wants)


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b, c and 2 more`."""
    more = len(names) - _NAMED
    if more > 0:
        return f"{', '.join(names[:_NAMED])} and {more} more"
    return joined(names)


def joined(names: Sequence[str], word: str = "and") -> str:
    """All of them: `a, b and c`."""
    return f" {word} ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])


def gpus_of(indexes: Sequence[int]) -> str:
    """`GPU 0`, `GPUs 0 and 1`."""
    return f"GPU{'' if len(indexes) == 1 else 's'} {joined([str(index) for index in indexes])}"


def gpus_on(places: Iterable[tuple[str, int]]) -> str:
    """Node names and GPU indexes: `GPUs 0 and 1 on node r1, GPU 0 on node r2`."""
    by_node: dict[str, list[int]] = {}
    for node, index in places:
        by_node.setdefault(node, []).append(index)
    named = [f"{gpus_of(indexes)} on node {node}" for node, indexes in list(by_node.items())[:_NAMED]]
    more = len(by_node) - _NAMED
    return ", ".join(named) + (f" and GPUs on {counted(more, 'other node')}" if more > 0 else "")


def short_resource(profile: str) -> str:
    """A MIG profile as people type it in a request, without the domain: `mig-1g.5gb.me`."""
    return mig_resource(profile).rpartition("/")[2]


def cpus(milli: int) -> str:
    return counted(milli / 1000, "CPU")


def gib(amount_bytes: int) -> str:
    return f"{round(amount_bytes / _GIB, 1):g} GiB of memory"


def cpus_and_memory(milli: int, amount_bytes: int) -> str:
    """What is not zero: `32 CPUs and 4 GiB of memory`, `32 CPUs`."""
    parts = [cpus(milli)] if milli else []
    return " and ".join([*parts, *([gib(amount_bytes)] if amount_bytes else [])]) or "no CPU or memory"


def sentence(text: str) -> str:
    """With a capital letter."""
    return text[:1].upper() + text[1:]
