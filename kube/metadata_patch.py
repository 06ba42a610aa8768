"""Computes the JSON patch that sets or removes single labels and annotations of an object.

Takes the object as it was read and the values that are to be there (None: the key is to be absent), returns operations;
none where nothing is to be done. The first one tests that the object is unchanged, so that what another client wrote
meanwhile is never overwritten unread. Sends nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Wanted = Mapping[str, str | None]


def metadata_patch(raw: Mapping[str, Any], *, labels: Wanted, annotations: Wanted) -> list[dict[str, Any]]:
    """All of it in one patch: there is no moment at which only a part has been written."""
    metadata = raw["metadata"]
    operations = [
        *_operations("labels", metadata.get("labels"), labels),
        *_operations("annotations", metadata.get("annotations"), annotations),
    ]
    unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}
    return [unchanged, *operations] if operations else []


def _operations(field: str, there: Mapping[str, str] | None, wanted: Wanted) -> Iterator[dict[str, Any]]:
    found = there or {}
    new = {key: value for key, value in wanted.items() if value is not None and found.get(key) != value}
    if new and not found:
        yield {"op": "add", "path": f"/metadata/{field}", "value": dict(sorted(new.items()))}
        return
    for key in sorted(wanted):
        path = f"/metadata/{field}/{key.replace('~', '~0').replace('/', '~1')}"
        if key in new:
            yield {"op": "add", "path": path, "value": new[key]}
        elif wanted[key] is None and key in found:
            yield {"op": "remove", "path": path}
