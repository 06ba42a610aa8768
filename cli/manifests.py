"""Reads plain Kubernetes manifests from files, folders or standard input, and checks them before anything starts.

Takes paths, returns objects, or every problem with file, document index, field and what would be right. Of a dump of a
cluster, objects that an API server has accepted are taken as they are, objects of other kinds are counted. Reads files
only; what only an API server can judge (CEL, pruning) is left to it.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema

from cli.dumped import problems_of
from cli.manifest_schemas import SCHEMAS, Schema
from cli.nvidia_config import what_it_is
from crds.v1alpha1.names import API_VERSION, KIND
from crds.v1alpha1.plan import NAMED_AFTER_NODE
from kube.yaml_text import NotYaml, path_of, read_documents

ORDER = ("Namespace", "Node", "ConfigMap", "GPUPartitionPlan", "Pod")
CLUSTER_SCOPED = frozenset(
    {"Namespace", "Node", "GPUPartitionPlan", "PriorityClass", "PersistentVolume", "StorageClass", "DeviceClass"}
)
SUFFIXES = (".yaml", ".yml", ".json")
RULES = ("not", "oneOf", "anyOf")
"""By these keywords our schemas say the rules of the CRD, and nothing else."""
LARGEST_DUMP = 1 << 30
"""Characters of one file: a dump of the largest clusters has some hundred millions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One object and where it was read."""

    source: str
    index: int
    body: dict[str, Any]
    item: str = ""
    """Where in a List it was, as .items[3]."""

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.body.get("kind", ""))

    @property
    def is_foreign(self) -> bool:
        """Of another group that has a kind of this name, as Rancher has a Node, and Knative a Service."""
        group = str(self.body.get("apiVersion", "")).rpartition("/")[0]
        return "." in group and not group.endswith((".k8s.io", "gpuplan.dev")) and self.kind != "PodGroup"

    @property
    def identity(self) -> tuple[str, str, str]:
        """Kind, namespace and name: no two objects share all three."""
        metadata = self.body["metadata"]
        namespace = "" if self.kind in CLUSTER_SCOPED else metadata.get("namespace", "default")
        return (self.kind, str(namespace), str(metadata.get("name")))

    @property
    def place(self) -> str:
        """Where it was read, for messages."""
        return f"{self.source}: document {self.index}{self.item}"


class ManifestError(ValueError):
    """At least one file cannot be used; the message has a line for each problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFiles:
    """Objects of a cluster, and how many of other kinds were passed over, by kind."""

    objects: tuple[dict[str, Any], ...]
    skipped: Mapping[str, int]


def load_cluster(paths: Sequence[str], kinds: Iterable[str]) -> ClusterFiles:
    """Objects of these kinds, from manifests or dumps; raises ManifestError naming every problem at once."""
    chosen = frozenset(kinds)
    texts = list(texts_of(paths))
    manifests, problems = parsed(texts)
    if not any(text.strip() for _, text in texts):
        problems.append(nothing(paths))
    read = [manifest for manifest in manifests if manifest.kind in chosen and not manifest.is_foreign]
    for manifest in manifests:
        if not manifest.kind:
            problems += numbered(manifest, ["kind: is missing: write Kubernetes objects, or a List of them"])
    for manifest in read:
        # An object with a uid comes from an API server, which knows more fields and forms than we do.
        metadata = manifest.body.get("metadata")
        dumped = manifest.kind not in ORDER or (isinstance(metadata, dict) and bool(metadata.get("uid")))
        problems += numbered(manifest, problems_of(manifest.body) if dumped else check(manifest))
    for source in dict.fromkeys(manifest.source for manifest in read):
        problems += duplicates([manifest for manifest in read if manifest.source == source])
    if problems:
        raise ManifestError("\n".join(problems))
    read = _latest(read)
    skipped = Counter(one.kind for one in manifests if one.kind not in chosen or one.is_foreign)
    return ClusterFiles(objects=tuple(manifest.body for manifest in read), skipped=dict(sorted(skipped.items())))


def _latest(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Of an object in several files that of the last, as if it were applied: what only the server writes stays."""
    found: dict[tuple[str, str, str], Manifest] = {}
    for manifest in manifests:
        before = found.get(manifest.identity)
        if before is not None:
            old, new = before.body, manifest.body
            body = {**old, **new, "metadata": {**old["metadata"], **new["metadata"]}}
            planned = (old.get("spec") or {}).get("planned")
            if planned is not None and "planned" not in (new.get("spec") or {}):
                body["spec"] = {**new.get("spec", {}), "planned": planned}
            found[manifest.identity] = replace(manifest, body=body)
        else:
            found[manifest.identity] = manifest
    return list(found.values())


def parsed(texts: Iterable[tuple[str, str]]) -> tuple[list[Manifest], list[str]]:
    problems: list[str] = []
    manifests: list[Manifest] = []
    for source, text in texts:
        found = read_documents(text, largest=LARGEST_DUMP)
        if isinstance(found, NotYaml):
            problems.append(f"{source}: {found.sentence}")
        else:
            foreign = list(map(what_it_is, found))
            problems += [f"{source}: document {index}: {what}" for index, what in enumerate(foreign) if what]
            manifests += _documents(source, [None if what else one for one, what in zip(found, foreign, strict=True)])
    return manifests, problems


def nothing(paths: Sequence[str]) -> str:
    return f"{', '.join(paths)}: no Kubernetes object in it; write at least one Node and a Pod"


def numbered(manifest: Manifest, lines: Iterable[str]) -> list[str]:
    return [f"{manifest.place}: {line}" for line in lines]


def texts_of(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if path == "-":
            yield "-", sys.stdin.read()
            continue
        found = Path(path)
        if found.is_dir():
            files = sorted(file for file in found.rglob("*") if file.suffix in SUFFIXES and not file.is_dir())
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
            except OSError as error:
                raise ManifestError(f"{file}: cannot be read: {error.strerror}") from None


def _documents(source: str, documents: Iterable[object]) -> Iterator[Manifest]:
    for index, document in enumerate(documents):
        if document is not None:
            for item, body in _items(_mapping(document)):
                yield Manifest(source=source, index=index, body=body, item=item)


def _items(document: dict[str, Any], place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a List, of Lists in it, too; those of a PodList and its like do not repeat what they are."""
    kind = str(document.get("kind", ""))
    if not (kind.endswith("List") and isinstance(document.get("items") or [], list)):
        yield place, document
        return
    head = {} if kind == "List" else {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
    for number, item in enumerate(document.get("items") or []):
        yield from _items({**head, **_mapping(item)}, f"{place}.items[{number}]")


def _mapping(document: object) -> dict[str, Any]:
    return document if isinstance(document, dict) else {"kind": "", "apiVersion": "", "metadata": {}}


def check(manifest: Manifest) -> list[str]:
    body = manifest.body
    kind = (str(body.get("apiVersion", "")), manifest.kind)
    if kind not in SCHEMAS:
        known = ", ".join(map(" ".join, SCHEMAS))
        return [f"apiVersion, kind: {kind[0]!r} {kind[1]!r} cannot be used here; known: {known}"]
    return _lines(SCHEMAS[kind], body) or (_misnamed(body) if manifest.kind == KIND else [])


def broken_rules(plan: Mapping[str, Any]) -> list[str]:
    """The rules and types of the CRD that a plan breaks, whatever else an API server of another version takes in it."""
    return [*_lines(SCHEMAS[API_VERSION, KIND], plan, only=(*RULES, "type")), *_misnamed(plan)]


def _misnamed(plan: Mapping[str, Any]) -> list[str]:
    return [] if plan["spec"]["nodeName"] == plan["metadata"]["name"] else [f"spec.nodeName: {NAMED_AFTER_NODE}"]


def _without_nulls(value: Any) -> Any:
    """An API server drops them."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _lines(schema: Schema, body: object, only: Collection[str] = ()) -> list[str]:
    """`only`: what these keywords of a schema find."""
    errors = jsonschema.Draft202012Validator(schema).iter_errors(_without_nulls(body))
    in_order = sorted(errors, key=lambda error: list(map(str, error.absolute_path)))
    return [
        f"{path_of(error.absolute_path) or '(the document)'}: {_sentence(error)}"
        for error in in_order
        if not only or error.validator in only
    ]


def _sentence(error: jsonschema.ValidationError) -> str:
    """The validator's message, and the schema's own description of the field as the remedy."""
    remedy = error.schema.get("description", "") if isinstance(error.schema, dict) else ""
    if error.validator in RULES:
        return f"{remedy}."
    return f"{error.message}. {remedy}".rstrip(". ") + "."


def duplicates(manifests: list[Manifest]) -> list[str]:
    seen: dict[tuple[str, str, str], Manifest] = {}
    lines = []
    for manifest in manifests:
        if not isinstance(manifest.body.get("metadata"), dict):
            continue
        first = seen.setdefault(manifest.identity, manifest)
        if first is not manifest:
            kind, _, name = manifest.identity
            lines.append(
                f"{manifest.place}: metadata.name: {kind} {name!r} is already in "
                f"{first.source}, document {first.index}{first.item}; give one of them another name"
            )
    return lines
