"""Sets of fields: the laws of sets, and which fields a value or a change stands for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.apiserver.ownership.fieldsets import (
    FieldSet,
    compare,
    describe,
    difference,
    fields_of,
    intersection,
    paths,
    union,
)
from sandbox.apiserver.schema.structural import compile_schema

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"i":0}', 'v:"x"'])


def field_set(members: set[tuple[str, ...]]) -> FieldSet:
    root: FieldSet = {}
    for path in sorted(members):
        node = root
        for element in path:
            node = node.setdefault(element, {})
    for path in sorted(members):
        node = root
        for element in path:
            node = node[element]
        if node:
            node["."] = {}
    return root


PATHS = st.sets(st.lists(ELEMENTS, min_size=1, max_size=3).map(tuple), max_size=8)
SCHEMA = compile_schema(
    {
        "type": "object",
        "properties": {
            "atom": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"x": {"type": "integer"}}},
            "plain": {"type": "array", "items": {"type": "integer"}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["i"],
                "items": {"type": "object", "properties": {"i": {"type": "integer"}, "v": {"type": "string"}}},
            },
            "free": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
)


@given(PATHS)
def test_the_wire_form_holds_the_members(members: set[tuple[str, ...]]) -> None:
    assert set(paths(field_set(members))) == members


@given(PATHS, PATHS)
def test_operations_are_those_of_sets(one: set[tuple[str, ...]], other: set[tuple[str, ...]]) -> None:
    a, b = field_set(one), field_set(other)

    assert set(paths(union(a, b))) == one | other
    assert set(paths(intersection(a, b))) == one & other
    assert set(paths(difference(a, b))) == one - other
    assert (a, b) == (field_set(one), field_set(other))


@pytest.mark.parametrize(
    ("value", "members"),
    [
        ({"atom": {"x": 1}}, ["f:atom"]),
        ({"plain": [1, 2]}, ["f:plain"]),
        ({"set": ["p"]}, ['f:set v:"p"']),
        ({"map": [{"i": 0, "v": "w"}]}, ['f:map k:{"i":0}', 'f:map k:{"i":0} f:i', 'f:map k:{"i":0} f:v']),
        ({"free": {"k": "v"}}, ["f:free f:k"]),
        ({"free": {}}, ["f:free"]),
        ({"map": []}, []),
    ],
)
def test_what_a_value_stands_for(value: Any, members: list[str]) -> None:
    assert [" ".join(path) for path in paths(fields_of(value, SCHEMA))] == members


@pytest.mark.parametrize(
    ("old", "new", "touched", "removed"),
    [
        ({}, {"atom": {"x": 1}}, ["f:atom"], []),
        ({"atom": {"x": 1}}, {"atom": {"x": 2}}, ["f:atom"], []),
        ({"map": [{"i": 0, "v": "a"}]}, {"map": [{"i": 0, "v": "b"}]}, ['f:map k:{"i":0} f:v'], []),
        ({"set": ["a", "b"]}, {"set": ["a"]}, [], ['f:set v:"b"']),
        ({"free": {"k": "v"}}, {}, [], ["f:free", "f:free f:k"]),
        ({"free": {"k": "v"}}, {"free": {"k": "v"}}, [], []),
    ],
)
def test_what_a_change_stands_for(old: Any, new: Any, touched: list[str], removed: list[str]) -> None:
    found = compare(old, new, SCHEMA)

    assert tuple([" ".join(path) for path in paths(part)] for part in found) == (touched, removed)


def test_paths_are_described_as_conflicts_do() -> None:
    path = ("f:spec", "f:cards", 'k:{"index":0,"name":"a"}', "f:tags", 'v:"x"')

    assert describe(path) == '.spec.cards[index=0,name="a"].tags[="x"]'
