"""A runbook as commands: what its diagnosis has a reader run, and what its mitigation names.

Takes the page of an alert and what its placeholders stand for; returns lines for a shell, exactly as they are printed.
"""

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
RUNBOOKS = ROOT / "docs/runbooks"
PLACEHOLDERS = "NODE|POD|NAMESPACE|NAME"


def diagnosis(alert: str) -> list[str]:
    """Its lines of shell, in order."""
    return re.findall(r"^ {4}(\S.*)$", _section(alert, "Diagnosis"), re.MULTILINE)


def mitigation(alert: str, begins: str) -> str:
    """The one command between words that begins so."""
    found = [command for command in _inline(_section(alert, "Mitigation")) if command.startswith(begins)]
    assert len(set(found)) == 1, f"{alert}: {begins} … is in the mitigation {len(found)} times"
    return found[0]


def steps(alert: str) -> list[str]:
    """The lines of shell in its mitigation, in order."""
    return re.findall(r"^ {6}(\S.*)$", _section(alert, "Mitigation"), re.MULTILINE)


def filled(line: str, values: Mapping[str, str]) -> str:
    """With names for placeholders; one without a name is an error of the page, or of its row."""
    missing = [word for word in re.findall(rf"\b(?:{PLACEHOLDERS})\b", line) if not values.get(word)]
    assert not missing, f"nothing says what {', '.join(missing)} is in: {line}"
    return re.sub(rf"\b({PLACEHOLDERS})\b", lambda found: values[found[1]], line)


def printed_pod(line: str, output: str) -> str:
    """The pod that a command of a page has printed; empty where it prints none."""
    if " get lease gpuplan-controller -o jsonpath" in line:
        return output.strip()
    if " get pods " in line:
        rows = [row.split()[0] for row in output.splitlines()[1:] if row]
        return rows[0] if rows else ""
    return ""


def _inline(text: str) -> list[str]:
    return [re.sub(r"\s+", " ", command) for command in re.findall(r"`([^`]+)`", text)]


def _section(alert: str, heading: str) -> str:
    text = (RUNBOOKS / f"{alert}.md").read_text()
    return text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
