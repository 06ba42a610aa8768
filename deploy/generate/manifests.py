"""deploy/manifests: what `helm template` prints of the chart, one file per template.

Takes the program `helm` and returns the files' texts. `fresh` compares the chart with the digest that was written
next to them, without helm. Between helm and the files the comments that name a template are removed, and a List is
replaced by its items, for readers and tools that expect one object per document.
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

DEPLOY = Path(__file__).parents[1]
CHART = DEPLOY / "chart"
FOLDER = DEPLOY / "manifests"
HEADER = "Made by `make manifests` from deploy/chart/templates: change it there."
DIGEST = "chart.sha256"
NAMESPACE = "gpuplan-system"
OPTIONS = ("--namespace", NAMESPACE, "--set", "namespace.create=true")
"""The values of the manifests: the chart's own, with the Namespace."""
IMAGE = "image: {repository: gpuplan}\n"
"""Where no other value names one: the chart has none by default. In the manifests kustomize replaces it."""
KUBERNETES = "1.30.0"
_SOURCE = re.compile(r"^# Source: gpuplan/templates/(\S+)\n", re.MULTILINE)


def template(helm: Path, *options: str, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
    """What `helm template` prints."""
    given = ("--kube-version", KUBERNETES, "--values", "-", *options)
    return run(helm, "template", "gpuplan", str(chart), *given, text=IMAGE)


def run(helm: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Output and errors of helm, which reads this text."""
    command = [str(helm), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)


def rendered(helm: Path) -> dict[str, str]:
    """Every file of deploy/manifests by its name; raises where the chart cannot be rendered."""
    done = template(helm, *OPTIONS)
    if done.returncode != 0:
        raise RuntimeError(f"helm template: {done.stderr.strip()}")
    made = {name: f"# {HEADER}\n{text}" for name, text in split(done.stdout).items()}
    return {**made, DIGEST: f"{digest()}\n{content_digest(made)}\n"}


def split(printed: str) -> dict[str, str]:
    """One file per template, its documents in the order in which helm prints them."""
    found: dict[str, list[str]] = {}
    for document in re.split(r"^---\n", printed, flags=re.MULTILINE):
        named = _SOURCE.match(document)
        if named is not None and document[named.end() :].strip():
            found.setdefault(named.group(1), []).extend(_items(document[named.end() :].strip("\n") + "\n"))
    return {name: "---\n".join(documents) for name, documents in sorted(found.items())}


def _items(document: str) -> list[str]:
    """The document, or the items of the List that it is, comments above each included."""
    comments, is_list, items = document.partition("apiVersion: v1\nkind: List\n")
    if not is_list:
        return [document]
    lines = items[items.index("items:\n") + len("items:\n") :].splitlines(keepends=True)
    found, above = [comments], ""
    for line in lines:
        if line.startswith("  #"):
            above += line[2:]
        elif line.startswith("  - "):
            found.append(above + line[4:])
            above = ""
        else:
            found[-1] += line[4:] if line.strip() else line
    return [found[0] + found[1], *found[2:]]


def digest(chart: Path = CHART) -> str:
    """Changes with whatever helm renders from: templates, the chart's version, and values, not their comments."""
    values = yaml.safe_load((chart / "values.yaml").read_text())
    found = hashlib.sha256(json.dumps([*OPTIONS, IMAGE, KUBERNETES, values], sort_keys=True).encode())
    for path in (chart / "Chart.yaml", *sorted((chart / "templates").iterdir())):
        found.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()


def content_digest(made: Mapping[str, str]) -> str:
    """Changes with whatever is edited by hand."""
    return hashlib.sha256(json.dumps(dict(made), sort_keys=True).encode()).hexdigest()


def fresh() -> bool:
    """Were the manifests rendered from the chart as it is, and not edited since?"""
    path = FOLDER / DIGEST
    there = {path.name: path.read_text() for path in FOLDER.glob("*.yaml")}
    return path.is_file() and path.read_text().split() == [digest(), content_digest(there)]
