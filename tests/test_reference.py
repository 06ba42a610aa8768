"""The tables of the pages are those of the code: settings."""

from itertools import dropwhile, islice, takewhile
from pathlib import Path

import pytest

from controller.config.settings import Settings as ControllerSettings
from kube.settings import Section
from nodeagent.settings import Settings as AgentSettings

ROOT = Path(__file__).parents[1]
OPERATING = (ROOT / "docs/operating.md").read_text()


def table(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the first table below a heading, by their first cell."""
    lines = page.split(f"\n## {heading}\n", 1)[1].split("\n")
    rows = takewhile(lambda line: line.startswith("|"), dropwhile(lambda line: not line.startswith("|"), lines))
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in islice(rows, 2, None)]
    return {first: rest for first, *rest in cells}


def shown(value: object) -> str:
    """A default as the page has it."""
    match value:
        case bool():
            return str(value).lower()
        case Section():
            return f"a mapping with {', '.join(str(field.alias) for field in type(value).model_fields.values())}"
        case tuple():
            return f"[{', '.join(map(str, value))}]"
        case float():
            return f"{value:g}"
    return str(value)


@pytest.mark.parametrize(
    ("settings", "heading"),
    [(ControllerSettings, "Controller"), (AgentSettings, "Node agent and device plugin")],
)
def test_settings(settings: type[ControllerSettings | AgentSettings], heading: str) -> None:
    rows = {key: " ".join(cells).strip() for key, cells in table(OPERATING, heading).items()}

    fields = settings.model_fields.values()
    assert rows == {
        str(field.alias): " ".join(f"{shown(field.get_default())} {field.description}".split()) for field in fields
    }


def test_a_table_is_read() -> None:
    page = "x\n## A\n\ntext\n\n| key | meaning |\n|---|---|\n| `a` | one |\n| b | two |\n\n| no | more |\n"
    assert table(page, "A") == {"a": ["one"], "b": ["two"]}
