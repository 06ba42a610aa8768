"""Selectors as text."""

import pytest

from sandbox.apiserver.errors import ApiError
from sandbox.apiserver.storage.selectors import field_predicate, label_predicate

POD = {
    "metadata": {"name": "p", "namespace": "n", "labels": {"app": "web", "tier": "1", "gpu.example.com/kind": "a"}},
    "spec": {"nodeName": "node-1", "flag": True},
    "status": {"phase": "Running"},
}
SELECTABLE = {"spec.nodeName": ("spec", "nodeName"), "status.phase": ("status", "phase"), "flag": ("spec", "flag")}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("app=web", True),
        ("app == web", True),
        ("app!=web", False),
        ("other!=web", True),
        ("app in (web, api)", True),
        ("app notin (web)", False),
        ("app,tier", True),
        ("!app", False),
        ("! other", True),
        ("gpu.example.com/kind=a,app=web", True),
        ("app=", False),
    ],
)
def test_labels(selector: str, matches: bool) -> None:
    assert label_predicate(selector)(POD) is matches


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("metadata.name=p", True),
        ("metadata.namespace!=n", False),
        ("spec.nodeName=node-1,status.phase!=Failed", True),
        ("spec.nodeName=", False),
        ("flag=true", True),
    ],
)
def test_fields(selector: str, matches: bool) -> None:
    assert field_predicate(selector, SELECTABLE)(POD) is matches


@pytest.mark.parametrize("selector", ["spec.foo=1", "spec.nodeName"])
def test_unsupported_fields_are_400(selector: str) -> None:
    with pytest.raises(ApiError) as caught:
        field_predicate(selector, SELECTABLE)

    assert caught.value.code == 400


@pytest.mark.parametrize("selector", ["=a", "a in (", "a=b c", "tier>0"])
def test_unreadable_labels_are_400(selector: str) -> None:
    with pytest.raises(ApiError) as caught:
        label_predicate(selector)

    assert caught.value.code == 400
