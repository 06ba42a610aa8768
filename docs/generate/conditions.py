"""Makes docs/conditions.md: every condition, reason, state and Event with its meaning and its remedy.

Reads the docstring below each member of the enumerations that the code writes them from. A member without one, or one
that needs a remedy and has none, is an error: nothing that a user can read lacks its meaning.
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from controller.model.reasons import UnplacedReason
from crds.v1alpha1.names import Condition, EventReason, GpuState, PartitionState, Reason
from docs.generate.tables import table

REMEDY = " Remedy: "
INTRODUCTION = """# Conditions, reasons and Events

Conditions are in `status.conditions` of a plan (`kubectl describe gpp NODE`), reasons at its conditions and at each of
its GPUs. Their messages name the GPU, the pod or the command that is meant.
"""
OPTIONAL = """Ready, Reconciling, Stalled, Applied and AgentAlive are always there, once the agent has written a status.
The others are there only while they have something to say, so that `kubectl describe` shows what matters:
"""

WHERE_ABSENT: Mapping[Condition, str] = MappingProxyType(
    {
        Condition.ADVERTISED: "True",
        Condition.DRIFTED: "False",
        Condition.OWNERSHIP_CONFLICT: "False",
        Condition.GPUS_HEALTHY: "True",
        Condition.MEMORY_ONLY: "False",
        Condition.HOST_ACCESS: "True",
        Condition.HANDED_BACK: "False",
        Condition.DRIVER_RELEASED: "False",
        Condition.ALLOCATABLE_WRITTEN: "True",
        Condition.SERVED_BY_DRA: "False",
        Condition.OPERATOR_LABELS: "True",
    }
)
"""What it means that an agent which has written Ready has not written such a condition; the others it always writes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a member means, and what to do about it; nothing where there is nothing to do."""

    meaning: str
    remedy: str


def page() -> str:
    """The page as text."""
    parts = [
        INTRODUCTION,
        "## Conditions of a plan\n",
        _section(Condition, "condition"),
        OPTIONAL,
        table(
            ("condition", "where it is not there, it is"), ((kind.value, is_so) for kind, is_so in WHERE_ABSENT.items())
        ),
        "## Reasons of conditions and GPUs\n",
        _section(Reason, "reason"),
        "## Reasons for which a pod waits\n",
        "An Event on the pod has the reason, what is missing and what would help; "
        "[operating.md](operating.md#events-of-waiting-pods) says when, "
        "[reasons.md](reasons.md) has situations, messages and remedies.\n",
        _section(UnplacedReason, "reason"),
        "## Other Events\n",
        "A GPU that fails, or is ready after a change of five seconds or more, has an Event on its plan, too.\n",
        _section(EventReason, "Event"),
        "## States of a GPU\n",
        _section(GpuState, "state"),
        "## States of a partition\n",
        _section(PartitionState, "state"),
    ]
    return "\n".join(parts)


def entries(kind: type[StrEnum]) -> Mapping[str, Entry]:
    """By value, in the order of the code."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for at, statement in enumerate(body.body):
        if not isinstance(statement, ast.Assign):
            continue
        target = statement.targets[0]
        assert isinstance(target, ast.Name)
        found[kind[target.id].value] = _entry(f"{kind.__name__}.{target.id}", body.body[at + 1 : at + 2])
    return found


def _entry(name: str, following: list[ast.stmt]) -> Entry:
    match following:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            meaning, _, remedy = " ".join(text.split()).partition(REMEDY)
            return Entry(meaning=meaning, remedy=_sentence(remedy))
    raise SystemExit(f'{name} has no docstring: write """What it means. Remedy: what to do.""" below it')


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _section(kind: type[StrEnum], name: str) -> str:
    found = entries(kind)
    if not any(entry.remedy for entry in found.values()):
        return table((name, "meaning"), ((value, entry.meaning) for value, entry in found.items()))
    rows = ((value, entry.meaning, entry.remedy) for value, entry in found.items())
    return table((name, "meaning", "remedy"), rows)
