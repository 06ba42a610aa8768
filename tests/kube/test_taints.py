"""The patch that puts a taint on a Node or takes it off, applied as the API server applies it."""

from typing import Any

import jsonpatch
import pytest

from kube.patches import has_taint, taint_patch

OURS = {"key": "example.com/ours", "effect": "NoSchedule"}
OTHER = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
EVICTS = {"key": "example.com/ours", "effect": "NoExecute"}


def node(spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n", "resourceVersion": "7"}, **({} if spec is ... else {"spec": spec})}


@pytest.mark.parametrize(
    ("spec", "present", "after"),
    [
        pytest.param(..., True, [OURS], id="added to a node without a spec"),
        pytest.param({}, True, [OURS], id="added to a node without taints"),
        pytest.param({"taints": []}, True, [OURS], id="added to an empty list"),
        pytest.param({"taints": [OTHER]}, True, [OTHER, OURS], id="added after others"),
        pytest.param({"taints": [OTHER, EVICTS]}, True, None, id="there, with another effect"),
        pytest.param({"taints": [OURS, OTHER]}, False, [OTHER], id="taken off, and others stay"),
        pytest.param({"taints": [OURS, OTHER, EVICTS]}, False, [OTHER], id="taken off twice"),
        pytest.param({"taints": [OTHER]}, False, None, id="not there"),
        pytest.param(..., False, None, id="not there, without a spec"),
    ],
)
def test_the_patch_changes_this_taint_alone(spec: Any, present: bool, after: list[dict[str, str]] | None) -> None:
    before = node(spec)

    operations = taint_patch(before, OURS, present=present)

    if after is None:
        assert operations == []
        return
    patched = jsonpatch.apply_patch(before, operations)
    assert patched["spec"]["taints"] == after
    assert has_taint(patched, OURS["key"]) is present


@pytest.mark.parametrize("present", [True, False])
def test_a_node_that_was_changed_meanwhile_is_left_alone(present: bool) -> None:
    taints = [] if present else [OURS]
    operations = taint_patch(node({"taints": taints}), OURS, present=present)

    changed = {"metadata": {"name": "n", "resourceVersion": "8"}, "spec": {"taints": [OTHER, *taints]}}
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(changed, operations)
