"""Checks the shape of an object in a dump before planning reads it; an API server has already judged the rest.

Takes an object of any kind that planning reads, returns sentences of field and remedy; none where it can be read. Never
judges values inside a readable object: the controller's own parser leaves out what it cannot use.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from controller.api.reading import epoch_seconds

Raw = Mapping[str, Any]
LONGEST_LABEL = 63
_WITH_SPEC = ("Pod", "GPUPartitionPlan", "PersistentVolumeClaim", "PersistentVolume")


def problems_of(body: Raw) -> list[str]:
    """Every problem at once."""
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        return ["metadata.name: is missing: every object has one"]
    if not isinstance(metadata.get("namespace"), str | None):
        return ["metadata.namespace: must be a text: quote it"]
    return [*_fields(body, metadata), *_values(body, metadata)]


def _fields(body: Raw, metadata: Raw) -> Iterable[str]:
    kind = body.get("kind")
    for field in ("labels", "annotations"):
        values = metadata.get(field) or {}
        if not isinstance(values, Mapping) or not all(isinstance(value, str) for value in values.values()):
            yield f"metadata.{field}: must be a mapping of texts: quote the values"
        elif field == "labels" and any(len(value) > LONGEST_LABEL for value in values.values()):
            yield f"metadata.labels: a value has more than {LONGEST_LABEL} characters"
    for field in ("spec", "status"):
        value = body.get(field)
        if field == "spec" and kind in _WITH_SPEC and not isinstance(value, Mapping):
            yield f"spec: is missing: a {kind} without one cannot be planned for"
        elif not isinstance(value or {}, Mapping):
            yield f"{field}: must be a mapping"
    spec = body.get("spec")
    if kind == "Pod" and isinstance(spec, Mapping):
        containers = spec.get("containers")
        if not isinstance(containers, list) or not all(isinstance(one, Mapping) for one in containers):
            yield "spec.containers: must be a list of containers, each a mapping with name and resources"


def _values(body: Raw, metadata: Raw) -> Iterable[str]:
    value = body.get("value")
    if body.get("kind") == "PriorityClass" and (isinstance(value, bool) or not isinstance(value, int | None)):
        yield f"value: {value!r} is not a whole number: a priority such as 1000 is needed"
    created = metadata.get("creationTimestamp")
    try:
        epoch_seconds(created)
    except (ValueError, TypeError):
        yield f"metadata.creationTimestamp: {created!r} is not a time such as 2026-01-31T12:00:00Z"
