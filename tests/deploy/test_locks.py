"""The lists in requirements/ have one version and the same hashes of each package, and all that pyproject.toml names.

An environment is made from one list, so a list that lacked something, or had it in another version, would show up late.
"""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]


def locked(name: str) -> dict[str, str]:
    """Each package of a list with all that the list says of it: version, platforms, hashes."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    entries = re.findall(r"^(\S+?)(==[^\n]*(?:\n {4}[^\n]*)*)", text, re.MULTILINE)
    return dict(entries)


def wanted(*requirements: str) -> set[str]:
    names = (re.split(r"[^A-Za-z0-9-]", requirement)[0] for requirement in requirements)
    return {name.lower() for name in names}


@pytest.mark.parametrize("name", ["product", "image", "sandbox", "uv"])
def test_every_list_is_a_part_of_the_developers(name: str) -> None:
    entries = locked(name)
    assert entries
    assert entries.items() <= locked("development").items()


@pytest.mark.parametrize(
    ("name", "requirements"),
    [
        ("product", []),
        ("sandbox", [*EXTRAS["sandbox"], *EXTRAS["build"], *PROJECT["build-system"]["requires"]]),
        ("development", [requirement for extra in EXTRAS.values() for requirement in extra]),
    ],
)
def test_a_list_has_all_that_is_asked_for(name: str, requirements: list[str]) -> None:
    missing = wanted(*PROJECT["project"]["dependencies"], *requirements) - locked(name).keys()
    assert missing == set()


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda path: path.stem)
def test_every_file_is_checked_and_comes_from_whichever_index_is_set(path: Path) -> None:
    text = path.read_text()
    assert text.count("--hash=sha256:") >= text.count("==") > 0
    assert "://" not in text
