"""Reads what a sandbox is to create: manifests that are right, in the order in which an API server takes them.

Takes paths, returns objects, or every problem with file, document index, field and what would be right. Creates none.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cli.hardware import gpus_of
from cli.manifests import ORDER, Manifest, ManifestError, check, duplicates, nothing, numbered, parsed, texts_of


def load(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Objects of all files in creation order; raises ManifestError naming every problem at once."""
    return [manifest.body for manifest in load_located(paths)]


def load_located(paths: Sequence[str]) -> list[Manifest]:
    """The same with the place of each."""
    manifests, problems = parsed(texts_of(paths))
    if not (manifests or problems):
        problems.append(nothing(paths))
    for manifest in manifests:
        problems += numbered(manifest, check(manifest) or _check_hardware(manifest))
    problems += duplicates(manifests)
    if problems:
        raise ManifestError("\n".join(problems))
    return sorted(manifests, key=lambda manifest: ORDER.index(manifest.kind))


def refused(manifests: Iterable[Manifest], body: Mapping[str, Any], why: str) -> ManifestError:
    """An API server did not take one of them: the same with its place, where it has one."""
    identity = Manifest(source="", index=0, body=dict(body)).identity
    places = [manifest.place for manifest in manifests if manifest.identity == identity]
    return ManifestError(": ".join([*places[:1], why]))


def _check_hardware(manifest: Manifest) -> list[str]:
    problem = gpus_of(manifest.body) if manifest.kind == "Node" else ()
    return [problem] if isinstance(problem, str) else []
