"""Plain Kubernetes manifests from files, folders or standard input, checked before anything is started.

In: paths. Out: objects in the order in which they can be created, or every problem with file, document index, field
and what would be right. Reads files only; what an API server alone can judge (CEL, pruning) is left to it.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from cli.manifest_schemas import SCHEMAS, known_kinds
from sandbox.hardware import Problem, gpus_of

ORDER = ("Namespace", "Node", "ConfigMap", "GPUPartitionPlan", "Pod")
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One object and where it was read."""

    source: str
    index: int
    body: dict[str, Any]

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.body.get("kind", ""))


class ManifestError(ValueError):
    """At least one file cannot be used; the message has a line for each problem."""


def load(paths: Iterable[str]) -> list[dict[str, Any]]:
    """Objects of all files in creation order; raises ManifestError naming every problem at once."""
    problems: list[str] = []
    manifests: list[Manifest] = []
    for source, text in _texts(paths):
        try:
            manifests += _documents(source, text)
        except yaml.YAMLError as error:
            problems.append(f"{source}: not YAML: {' '.join(str(error).split())}")
    for manifest in manifests:
        problems += [f"{manifest.source}: document {manifest.index}: {line}" for line in _check(manifest)]
    problems += _duplicates(manifests)
    if problems:
        raise ManifestError("\n".join(problems))
    return [m.body for m in sorted(manifests, key=lambda m: ORDER.index(m.kind))]


def _texts(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if path == "-":
            yield "-", sys.stdin.read()
            continue
        found = Path(path)
        if found.is_dir():
            files = sorted(file for file in found.rglob("*") if file.suffix in SUFFIXES)
            if not files:
                raise ManifestError(f"{path}: no {', '.join(SUFFIXES)} file in this folder")
        elif found.is_file():
            files = [found]
        else:
            raise ManifestError(f"{path}: no such file or folder")
        for file in files:
            try:
                yield str(file), file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                raise ManifestError(f"{file}: not a text file in UTF-8") from None


def _documents(source: str, text: str) -> Iterator[Manifest]:
    for index, document in enumerate(yaml.load_all(text, Loader=_Loader)):
        if document is None:
            continue
        if isinstance(document, dict) and document.get("kind") == "List":
            for item in document.get("items") or []:
                yield Manifest(source=source, index=index, body=_mapping(item))
        else:
            yield Manifest(source=source, index=index, body=_mapping(document))


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: a time stamp stays the text that it is."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _mapping(document: object) -> dict[str, Any]:
    return document if isinstance(document, dict) else {"kind": "", "apiVersion": "", "metadata": {}}


def _check(manifest: Manifest) -> list[str]:
    body = manifest.body
    kind = (body.get("apiVersion"), body.get("kind"))
    if kind not in SCHEMAS:
        return [f"apiVersion, kind: {kind[0]!r} {kind[1]!r} cannot be used here; known: {known_kinds()}"]
    validator = jsonschema.Draft202012Validator(SCHEMAS[kind])
    errors = sorted(validator.iter_errors(body), key=lambda error: list(map(str, error.absolute_path)))
    lines = [f"{_path(error)}: {_sentence(error)}" for error in errors]
    if not lines and manifest.kind == "Node":
        problem = gpus_of(body)
        if isinstance(problem, Problem):
            lines.append(f"{problem.field}: {problem.message}")
    return lines


def _path(error: jsonschema.ValidationError) -> str:
    path = ""
    for part in error.absolute_path:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".") or "(the document)"


def _sentence(error: jsonschema.ValidationError) -> str:
    """The validator's words, and the schema's own description of the field as the remedy."""
    remedy = error.schema.get("description", "") if isinstance(error.schema, dict) else ""
    return f"{error.message}. {remedy}".rstrip(". ") + "."


def _duplicates(manifests: list[Manifest]) -> list[str]:
    seen: dict[tuple[str, str, str], Manifest] = {}
    lines = []
    for manifest in manifests:
        metadata = manifest.body.get("metadata")
        if not isinstance(metadata, dict) or manifest.kind not in ORDER:
            continue
        namespace = metadata.get("namespace", "default") if manifest.kind in {"Pod", "ConfigMap"} else ""
        key = (manifest.kind, str(namespace), str(metadata.get("name")))
        first = seen.setdefault(key, manifest)
        if first is not manifest:
            lines.append(
                f"{manifest.source}: document {manifest.index}: metadata.name: {key[0]} {key[2]!r} is already in "
                f"{first.source}, document {first.index}; give one of them another name"
            )
    return lines
