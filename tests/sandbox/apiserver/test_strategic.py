"""Strategic merge patch: merge keys and directives."""

from typing import Any

import pytest

from sandbox.apiserver.patches import strategic_merge

A, B = {"name": "a", "image": "1"}, {"name": "b", "image": "1"}
CASES = [
    pytest.param({"x": 1, "y": 2}, {"y": None}, {"x": 1}, id="null removes"),
    pytest.param({"containers": [A, B]}, {"containers": [{"name": "b", "image": "2"}]},
                 {"containers": [A, {"name": "b", "image": "2"}]}, id="by key"),
    pytest.param({"containers": [A]}, {"containers": [B]}, {"containers": [A, B]}, id="new item"),
    pytest.param({"containers": [A, B]}, {"containers": [{"name": "a", "$patch": "delete"}]},
                 {"containers": [B]}, id="delete item"),
    pytest.param({"containers": [A, B]}, {"containers": [{"$patch": "replace"}, A]},
                 {"containers": [A]}, id="replace list"),
    pytest.param({"containers": [A, B]}, {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]},
                 {"containers": [A, B]}, id="the order is not followed"),
    pytest.param({"m": {"a": 1, "b": 2}}, {"m": {"$patch": "replace", "c": 3}}, {"m": {"c": 3}}, id="replace map"),
    pytest.param({"m": {"a": 1}}, {"m": {"$patch": "delete"}}, {}, id="delete map"),
    pytest.param({"m": {"a": 1, "b": 2}}, {"m": {"$retainKeys": ["b"], "b": 3}}, {"m": {"b": 3}}, id="retain keys"),
    pytest.param({"taints": [{"key": "a"}]}, {"taints": [{"key": "b"}]}, {"taints": [{"key": "b"}]}, id="no key"),
    pytest.param({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}, id="set"),
    pytest.param({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]},
                 {"finalizers": ["b"]}, id="delete from set"),
    pytest.param({"ports": [{"port": 1, "name": "x"}]}, {"ports": [{"port": 1, "name": "y"}]},
                 {"ports": [{"port": 1, "name": "y"}]}, id="ports of a service"),
    pytest.param({"ports": [{"containerPort": 1}]}, {"ports": [{"containerPort": 2}]},
                 {"ports": [{"containerPort": 1}, {"containerPort": 2}]}, id="ports of a container"),
    pytest.param({}, {"env": [{"name": "a", "value": "b"}]}, {"env": [{"name": "a", "value": "b"}]}, id="into nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "patch", "merged"), CASES)
def test_strategic_merge(target: dict[str, Any], patch: dict[str, Any], merged: dict[str, Any]) -> None:
    assert strategic_merge(target, patch) == merged
