"""`gpuplan plan -f … -o json` as a person calls it, and short views of what it prints."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.__main__ import main
from tests.builders.objects import node, pod

EXAMPLES = Path(__file__).parents[2] / "examples"
KEYS = {"placed", "unplaced", "plans", "bound", "seconds", "leftOut", "remarks", "withoutRequest", "impossible"}


def planned(
    capsys: pytest.CaptureFixture[str], *paths: Path | str, config: Path | None = None, expected: int = 0
) -> dict[str, Any]:
    more = ["--config", str(config)] if config else []
    code = main(["plan", "-f", *map(str, paths), "-o", "json", *more])
    captured = capsys.readouterr()
    assert (code, captured.err) == (expected, "")
    found: dict[str, Any] = json.loads(captured.out)
    assert set(found) == KEYS
    return found


def cluster() -> list[Any]:
    """One node and two pods that it can serve."""
    return [node(), pod("one"), pod("two")]


def dump(folder: Path, *objects: Any, name: str = "dump.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return path


def places(found: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["node"] for one in found["placed"]}


def reasons(found: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["reason"] for one in found["unplaced"]}


def layouts(found: dict[str, Any]) -> dict[str, list[str]]:
    return {
        plan["metadata"]["name"]: [
            " ".join(f"{one['profile']}@{one['start']}" for one in gpu["mig"]["instances"])
            for gpu in plan["spec"]["planned"]["gpus"]
        ]
        for plan in found["plans"]
    }


def case(letter: str) -> Path:
    (path,) = (EXAMPLES / "what-if").glob(f"{letter}-*.yaml")
    return path
