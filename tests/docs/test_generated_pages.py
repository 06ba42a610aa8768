"""The generated pages: every condition, reason and Event that the code can write, and every field of the API."""

import ast
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from controller.config.settings import Settings as ControllerSettings
from controller.model.reasons import UnplacedReason
from crds.v1alpha1.names import Condition, EventReason, GpuState, PartitionState, Reason
from crds.v1alpha1.spec import PlanSpec
from crds.v1alpha1.status import PlanStatus
from docs.generate import api, conditions, settings
from docs.generate.__main__ import FOLDER, PAGES, text
from docs.generate.tables import table
from nodeagent.settings import Settings as AgentSettings
from tests.docs import pages

ROOT = Path(__file__).parents[2]
KINDS = (Condition, Reason, UnplacedReason, EventReason, GpuState, PartitionState)
PRODUCT = [path for package in ("controller", "nodeagent") for path in (ROOT / package).rglob("*.py")]


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_fresh(name: str) -> None:
    assert (FOLDER / name).read_text() == text(name)


@pytest.mark.parametrize("kind", KINDS)
def test_every_member_has_a_row_with_its_meaning(kind: type[StrEnum]) -> None:
    entries = conditions.entries(kind)
    page = conditions.page()

    assert list(entries) == [member.value for member in kind]
    assert [value for value, entry in entries.items() if f"| {value} | {entry.meaning} |" not in page] == []


@pytest.mark.parametrize("kind", [Condition, UnplacedReason])
def test_what_people_act_on_has_a_remedy(kind: type[StrEnum]) -> None:
    assert [value for value, entry in conditions.entries(kind).items() if not entry.remedy] == []


def test_what_needs_a_person_has_a_remedy() -> None:
    fine = set(list(Reason)[: list(Reason).index(Reason.CHANGING)])
    found = conditions.entries(Reason)
    assert {value for value, entry in found.items() if not entry.remedy} == {reason.value for reason in fine}


class Bare(StrEnum):
    KNOWN = "Known"
    """It has a meaning. Remedy: wait."""
    NEW = "New"


def test_a_member_without_a_meaning_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"Bare\.NEW has no docstring"):
        conditions.entries(Bare)


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call of a function or method of this name in the product, with its file."""
    for path in PRODUCT:
        # Most files do not name it, and parsing them all takes seconds.
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if name in text else ():
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and name in (getattr(called, "attr", ""), getattr(called, "id", "")):
                yield str(path.relative_to(ROOT)), node


@pytest.mark.slow
def test_no_event_has_a_reason_outside_the_enumerations() -> None:
    """Types prove it where the reason is passed on; a literal would pass as text where a type is lost."""
    emitted = [(path, call) for name in ("emit", "_emit") for path, call in calls(name) if len(call.args) >= 4]
    stated = [(path, keyword) for path, call in calls("Statement") for keyword in call.keywords]

    assert len(emitted) >= 6
    assert [(path, call.lineno) for path, call in emitted if isinstance(call.args[2], ast.Constant)] == []
    assert [path for path, word in stated if word.arg == "reason" and isinstance(word.value, ast.Constant)] == []


@pytest.mark.parametrize("kind", [Condition, Reason, UnplacedReason, EventReason])
def test_every_member_is_used(kind: type[StrEnum]) -> None:
    code = "\n".join(path.read_text() for path in PRODUCT)
    assert [member.name for member in kind if f"{kind.__name__}.{member.name}" not in code] == []


def test_the_api_page_has_every_field() -> None:
    page = api.page()
    for part, model in (("spec", PlanSpec), ("status", PlanStatus)):
        section = page.split(f"\n## {part}\n", 1)[1].split("\n## ", 1)[0]
        names = [str(field.alias) for field in model.model_fields.values()]
        assert [name for name in names if f"| `{name}`" not in section and f"| `{name}[]`" not in section] == []
    assert "| `spec.gpus[].mig.instances[]` | give start (one exact placement) or count" in page


def test_every_setting_is_listed() -> None:
    page = settings.page()
    for heading, program in (("Controller", ControllerSettings), ("Node agent", AgentSettings)):
        listed = {key.split(".")[0] for key in pages.table(page, heading)}
        assert listed == {str(field.alias) for field in program.model_fields.values()}
    assert pages.table(page, "Controller")["leaderElection.leaseDurationSeconds"][0] == "15"


def test_a_table_is_read() -> None:
    page = "x\n## A\n\ntext\n\n| key | meaning |\n|---|---|\n| `a` | one |\n| b | two |\n\n| no | more |\n"
    assert pages.table(page, "A") == {"a": ["one"], "b": ["two"]}


def test_a_cell_is_escaped() -> None:
    assert table(["a"], [["gpu-<N>gb | `x < y`"]]) == "| a |\n| --- |\n| gpu-&lt;N>gb \\| `x < y` |\n"
