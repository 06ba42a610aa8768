"""Patches of labels and annotations, as an API server takes them."""

from typing import Any

import pytest

from kube.patches import metadata_patch

TEST = {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}


def raw(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n", "resourceVersion": "7", **metadata}}


@pytest.mark.parametrize(
    ("there", "labels", "expected"),
    [
        ({}, {}, []),
        ({}, {"a": None}, []),
        ({"a": "1"}, {"a": "1"}, []),
        ({}, {"b": "2", "a": "1"}, [{"op": "add", "path": "/metadata/labels", "value": {"a": "1", "b": "2"}}]),
        ({"b": "2"}, {"a": "1"}, [{"op": "add", "path": "/metadata/labels/a", "value": "1"}]),
        ({"a": "1"}, {"a": ""}, [{"op": "add", "path": "/metadata/labels/a", "value": ""}]),
        ({"a": "1"}, {"a": None}, [{"op": "remove", "path": "/metadata/labels/a"}]),
        ({"x.y/a~b": "1"}, {"x.y/a~b": None}, [{"op": "remove", "path": "/metadata/labels/x.y~1a~0b"}]),
    ],
)
def test_only_what_differs_is_written(
    there: dict[str, str], labels: dict[str, str | None], expected: list[dict[str, Any]]
) -> None:
    found = metadata_patch(raw(**({"labels": there} if there else {})), labels=labels, annotations={})
    assert found == ([TEST, *expected] if expected else [])


def test_labels_and_annotations_are_one_patch() -> None:
    found = metadata_patch(raw(labels={"a": "1"}, annotations={"c": "3"}), labels={"a": None}, annotations={"c": "4"})
    assert found == [
        TEST,
        {"op": "remove", "path": "/metadata/labels/a"},
        {"op": "add", "path": "/metadata/annotations/c", "value": "4"},
    ]
