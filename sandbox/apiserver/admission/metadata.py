"""Checks the metadata of every kind: names, labels, what an update may not change.

Takes an object that is about to be stored and the stored one, and returns FieldErrors. Must never change an object.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from sandbox.apiserver.errors import FieldError, wrong
from sandbox.apiserver.objects import Obj, mappings, meta
from sandbox.apiserver.resources.resource import Resource

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = f"{_LABEL}(\\.{_LABEL})*"
_SUBDOMAIN_HELP: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_HELP: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_VALUE: Final = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_VALUE_HELP: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE}')"
)
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_KEY_HELP: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_KEY}')"
)


def check_metadata(resource: Resource, obj: Obj, old: Obj | None) -> list[FieldError]:
    found = meta(obj)
    errors = [] if old is not None else list(_check_name(resource, found.get("name", "")))
    before = meta(old or {})
    if found.get("finalizers") is not before.get("finalizers"):
        for name in found.get("finalizers") or []:
            errors += _check_key(name, "metadata.finalizers")
    if found.get("ownerReferences") is not before.get("ownerReferences"):
        errors += _check_owners(found.get("ownerReferences") or [])
    if found.get("labels") is not before.get("labels"):
        errors += _check_labels(found.get("labels") or {})
    if found.get("annotations") is not before.get("annotations"):
        for key in found.get("annotations") or {}:
            errors += _check_key(key, "metadata.annotations")
    return errors


def _check_name(resource: Resource, name: str) -> Iterator[FieldError]:
    is_label = resource.kind in ("Namespace", "Service")
    most, pattern, text = (63, _LABEL, _LABEL_HELP) if is_label else (253, _SUBDOMAIN, _SUBDOMAIN_HELP)
    if len(name) > most:
        yield wrong("metadata.name", name, f"must be no more than {most} bytes")
    elif not re.fullmatch(pattern, name):
        yield wrong("metadata.name", name, text)


def _check_labels(labels: dict[str, Any]) -> Iterator[FieldError]:
    for key, value in labels.items():
        yield from _check_key(key, "metadata.labels")
        if not isinstance(value, str) or not re.fullmatch(_VALUE, value):
            yield wrong("metadata.labels", value, _VALUE_HELP)
        elif len(value) > 63:
            yield wrong("metadata.labels", value, "must be no more than 63 bytes")


def _check_owners(owners: list[Any]) -> Iterator[FieldError]:
    for owner in mappings(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                detail = "version must not be empty" if field == "apiVersion" else "must not be empty"
                yield wrong(f"metadata.ownerReferences.{field}", "", detail)


def _check_key(key: str, path: str) -> Iterator[FieldError]:
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_SUBDOMAIN, prefix.lower()):
        yield wrong(path, key, f"prefix part {_SUBDOMAIN_HELP}")
    if not re.fullmatch(_KEY, name):
        yield wrong(path, key, _KEY_HELP)
    elif len(name) > 63:
        yield wrong(path, key, "name part must be no more than 63 bytes")
