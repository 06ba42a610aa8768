"""Parses label and field selectors into predicates on objects.

Takes `labelSelector` and `fieldSelector` and returns one function from object to bool, or None for all objects.
Malformed or unsupported selectors are refused with 400. Must never read the store.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.apiserver.errors import bad_request
from sandbox.apiserver.objects import Obj, dig, meta

Predicate = Callable[[Obj], bool]

_LABEL_TERM = re.compile(
    r"""\s*(?:
        !\s*(?P<absent>[^\s,=!()<>]+)
      | (?P<key>[^\s,=!()<>]+)\s*
        (?: (?P<operator>==|=|!=)\s*(?P<value>[^\s,()]*)
          | (?P<set>in|notin)\s*\((?P<values>[^)]*)\) )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_FIELD_TERM = re.compile(r"^\s*(?P<label>[^=!\s]+)\s*(?P<operator>==|=|!=)(?P<value>.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One term on one label."""

    key: str
    operator: str  # in, notin, exists, absent
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "absent":
            return value is None
        if self.operator == "notin":
            return value is None or value not in self.values
        if self.operator == "exists":
            return value is not None
        return value in self.values


def parse_labels(text: str) -> tuple[Requirement, ...]:
    requirements: list[Requirement] = []
    position = 0
    while position < len(text):
        term = _LABEL_TERM.match(text, position)
        if term is None or term.end() == position:
            raise bad_request(f"unable to parse requirement: couldn't parse the selector string {text!r}")
        position = term.end()
        requirements.append(_requirement(term))
    return tuple(requirements)


def _requirement(term: re.Match[str]) -> Requirement:
    if term["absent"]:
        return Requirement(key=term["absent"], operator="absent")
    if term["set"]:
        return Requirement(
            key=term["key"], operator=term["set"], values=tuple(value.strip() for value in term["values"].split(","))
        )
    if term["operator"]:
        operator = "notin" if term["operator"] == "!=" else "in"
        return Requirement(key=term["key"], operator=operator, values=(term["value"],))
    return Requirement(key=term["key"], operator="exists")


def label_predicate(text: str) -> Predicate:
    requirements = parse_labels(text)

    def matches(obj: Obj) -> bool:
        labels = meta(obj).get("labels") or {}
        return all(requirement.matches(labels) for requirement in requirements)

    return matches


def field_predicate(text: str, selectable: Mapping[str, tuple[str, ...]]) -> Predicate:
    """`selectable` maps each label, but metadata.name and metadata.namespace, to a path."""
    terms: list[tuple[tuple[str, ...], bool, str]] = []
    for part in filter(str.strip, text.split(",")):
        term = _FIELD_TERM.match(part)
        if term is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        label = term["label"]
        path = selectable.get(label) or (tuple(label.split(".")) if label in _ALWAYS else None)
        if path is None:
            raise bad_request(f"field label not supported: {label}")
        terms.append((path, term["operator"] != "!=", term["value"].strip()))

    def matches(obj: Obj) -> bool:
        return all((_text(dig(obj, *path), path) == value) is wanted for path, wanted, value in terms)

    return matches


_ALWAYS = ("metadata.name", "metadata.namespace")


def _text(value: Any, path: tuple[str, ...]) -> str:
    if value is None:
        return "false" if path == ("spec", "unschedulable") else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def selector(query: Mapping[str, str], selectable: Mapping[str, tuple[str, ...]]) -> Predicate | None:
    """Both selectors of a query as one predicate."""
    labels, fields = query.get("labelSelector"), query.get("fieldSelector")
    by_label = label_predicate(labels) if labels else None
    by_field = field_predicate(fields, selectable) if fields else None
    if by_label is not None and by_field is not None:
        first, second = by_field, by_label
        return lambda obj: first(obj) and second(obj)
    return by_label or by_field
