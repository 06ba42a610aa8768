"""The CRD as real API servers take it: established, each rule with an object that keeps it and one that breaks it.

The messages are those that a person sees with kubectl. Costs: every bound ten times as wide is still accepted, so that
the API can grow.
"""

import copy
import json
from typing import Any

import pytest

from crds.v1alpha1 import names
from deploy.generate.crd import definition
from kube import apply
from tests.e2e.real_cluster import CRDS, MERGE, PLANS, RealCluster, call, plan
from tests.waiting import eventually

MIG = {"profile": "1g.10gb"}
WHOLE = {"index": 0, "whole": {}}
STATUS_CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Confirmed",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def gpus(*items: dict[str, Any]) -> dict[str, Any]:
    return plan("n1", gpus=list(items))


def mig(*instances: dict[str, Any]) -> dict[str, Any]:
    return {"index": 0, "mig": {"instances": list(instances)}}


def mps(*slices: dict[str, Any]) -> dict[str, Any]:
    return {"index": 0, "mps": {"slices": list(slices)}}


FULL_GPU = [{**MIG, "start": start} for start in range(16)]
ACCEPTED = {
    "minimal": plan("n1"),
    "everything people write": plan(
        "n1",
        mode="Manual",
        paused=False,
        devicePlugin={"backend": "nvidia", "renameByDefault": True},
        gpus=[{**WHOLE, "uuid": "GPU-0f"}],
    ),
    "start": gpus(mig({**MIG, "start": 0})),
    "count": gpus(mig({**MIG, "count": 7})),
    "neither start nor count": gpus(mig({"profile": "1g.10gb+me"})),
    "profile without media": gpus(mig({"profile": "1g.24gb-me"})),
    "profile with all media": gpus(mig({"profile": "1g.24gb+me.all"})),
    "graphics profile": gpus(mig({"profile": "1g.24gb+gfx"})),
    "no instances": gpus(mig()),
    "whole": gpus(WHOLE),
    "slices of GB": gpus(mps({"memoryGB": 20, "count": 2, "threadPercent": 10})),
    "slices of GiB": gpus(mps({"memoryGiB": 3})),
    "replicas": gpus({"index": 0, "mps": {"replicas": 4}}),
    "named replicas": gpus(
        {"index": 0, "mps": {"replicas": 60, "renameByDefault": False, "failRequestsGreaterThanOne": False}}
    ),
    "null union members": gpus({**WHOLE, "mig": None, "mps": None}),
    "null options": plan("n1", mode=None, paused=None, gpus=None, planned=None),
    "full": plan("n1", gpus=[{"index": i, "mig": {"instances": FULL_GPU}} for i in range(16)]),
    "planned": plan("n1", planned={"gpus": [WHOLE, {**mig({**MIG, "start": 0}), "index": 1}]}),
    "planned and full": plan("n1", planned={"gpus": [{"index": i, "mig": {"instances": FULL_GPU}} for i in range(16)]}),
}
EXACTLY_ONE = "a listed GPU has exactly one of mig, mps or whole (leave the GPU out to leave it alone)"
PROFILE_FORM = (
    "a profile is as nvidia-smi prints it, such as 1g.10gb or 1g.10gb+me; "
    "nvidia.com/mig-1g.10gb.me is the resource that pods request"
)
START_XOR_COUNT = "give start (one exact placement) or count (the agent places them), not both"
GB_XOR_GIB = "give memoryGB (10^9 bytes, nvidia.com/gpu-<N>gb) or memoryGiB (2^30 bytes, aliyun.com/gpu-mem)"
SLICES_XOR_REPLICAS = "give slices (sized shares) or replicas (equal shares)"
OF_REPLICAS = "renameByDefault and failRequestsGreaterThanOne concern replicas: remove them, or give replicas"
NAMED_AFTER_NODE = "spec.nodeName must equal metadata.name (a plan is named after its node)"
REFUSED = {
    "another node's name": ({**plan("n1"), "metadata": {"name": "n2"}}, "spec.nodeName", NAMED_AFTER_NODE),
    "none of three": (gpus({"index": 0}), "spec.gpus[0]", EXACTLY_ONE),
    "two of three": (gpus({**WHOLE, "mps": {"replicas": 2}}), "spec.gpus[0]", EXACTLY_ONE),
    "whole is null": (gpus({"index": 0, "whole": None}), "spec.gpus[0]", EXACTLY_ONE),
    "start and count": (gpus(mig({**MIG, "start": 0, "count": 1})), "spec.gpus[0].mig.instances[0]", START_XOR_COUNT),
    "GB and GiB": (gpus(mps({"memoryGB": 1, "memoryGiB": 1})), "spec.gpus[0].mps.slices[0]", GB_XOR_GIB),
    "neither GB nor GiB": (gpus(mps({"count": 1})), "spec.gpus[0].mps.slices[0]", GB_XOR_GIB),
    "slices and replicas": (
        gpus({"index": 0, "mps": {"slices": [], "replicas": 2}}),
        "spec.gpus[0].mps",
        SLICES_XOR_REPLICAS,
    ),
    "neither slices nor replicas": (gpus({"index": 0, "mps": {}}), "spec.gpus[0].mps", SLICES_XOR_REPLICAS),
    "slices with a name for replicas": (
        gpus({"index": 0, "mps": {"slices": [], "renameByDefault": True}}),
        "spec.gpus[0].mps",
        OF_REPLICAS,
    ),
    "planned: slices with a rule for replicas": (
        plan("n1", planned={"gpus": [{"index": 0, "mps": {"slices": [], "failRequestsGreaterThanOne": True}}]}),
        "spec.planned.gpus[0].mps",
        OF_REPLICAS,
    ),
    "planned: none of three": (plan("n1", planned={"gpus": [{"index": 0}]}), "spec.planned.gpus[0]", EXACTLY_ONE),
    "planned: start and count": (
        plan("n1", planned={"gpus": [mig({**MIG, "start": 0, "count": 1})]}),
        "spec.planned.gpus[0].mig.instances[0]",
        START_XOR_COUNT,
    ),
    "planned: GB and GiB": (
        plan("n1", planned={"gpus": [mps({"memoryGB": 1, "memoryGiB": 1})]}),
        "spec.planned.gpus[0].mps.slices[0]",
        GB_XOR_GIB,
    ),
    "planned: slices and replicas": (
        plan("n1", planned={"gpus": [{"index": 0, "mps": {"slices": [], "replicas": 2}}]}),
        "spec.planned.gpus[0].mps",
        SLICES_XOR_REPLICAS,
    ),
    # The schema's own bounds.
    "no spec": ({k: v for k, v in plan("n1").items() if k != "spec"}, "spec", "Required value"),
    "no nodeName": ({**plan("n1"), "spec": {}}, "spec.nodeName", "Required value"),
    "empty nodeName": ({**plan("n1"), "spec": {"nodeName": ""}}, "spec.nodeName", "should be at least 1 chars long"),
    "one index twice": (gpus(WHOLE, WHOLE), "spec.gpus[1]", "Duplicate value"),
    "planned: one index twice": (plan("n1", planned={"gpus": [WHOLE, WHOLE]}), "spec.planned.gpus[1]", "Duplicate"),
    "no index": (gpus({"whole": {}}), "spec.gpus[0].index", "Required value"),
    "index too high": (gpus({**WHOLE, "index": 16}), "spec.gpus[0].index", "less than or equal to 15"),
    "index below zero": (gpus({**WHOLE, "index": -1}), "spec.gpus[0].index", "greater than or equal to 0"),
    "17 GPUs": (gpus(*({**WHOLE, "index": i} for i in range(17))), "spec.gpus", "must have at most 16 items"),
    "17 instances": (gpus(mig(*[MIG] * 17)), "spec.gpus[0].mig.instances", "must have at most 16 items"),
    "17 slices": (gpus(mps(*[{"memoryGB": 1}] * 17)), "spec.gpus[0].mps.slices", "must have at most 16 items"),
    **{
        f"profile {text}": (gpus(mig({"profile": text})), "spec.gpus[0].mig.instances[0].profile", PROFILE_FORM)
        for text in ("1g10gb", "mig-1g.10gb", "nvidia.com/mig-1g.10gb", "1g.10gb.me", "1G.10GB")
    },
    "planned: a resource as profile": (
        plan("n1", planned={"gpus": [mig({"profile": "mig-1g.10gb"})]}),
        "spec.planned.gpus[0].mig.instances[0].profile",
        PROFILE_FORM,
    ),
    "no profile": (gpus(mig({"start": 1})), "spec.gpus[0].mig.instances[0].profile", "Required value"),
    "start too high": (gpus(mig({**MIG, "start": 16})), "spec.gpus[0].mig.instances[0].start", "equal to 15"),
    "count zero": (gpus(mig({**MIG, "count": 0})), "spec.gpus[0].mig.instances[0].count", "equal to 1"),
    "one replica": (gpus({"index": 0, "mps": {"replicas": 1}}), "spec.gpus[0].mps.replicas", "equal to 2"),
    "61 replicas": (gpus({"index": 0, "mps": {"replicas": 61}}), "spec.gpus[0].mps.replicas", "equal to 60"),
    "no memory": (gpus(mps({"memoryGB": 0})), "spec.gpus[0].mps.slices[0].memoryGB", "equal to 1"),
    "101 percent": (
        gpus(mps({"memoryGB": 1, "threadPercent": 101})),
        "spec.gpus[0].mps.slices[0].threadPercent",
        "equal to 100",
    ),
    "bad uuid": (gpus({**WHOLE, "uuid": "MIG-1"}), "spec.gpus[0].uuid", "should match"),
    "unknown mode": (plan("n1", mode="auto"), "spec.mode", 'supported values: "Auto", "Manual"'),
    "unknown backend": (plan("n1", devicePlugin={"backend": "x"}), "spec.devicePlugin.backend", "supported values"),
    "misspelt field": (plan("n1", pausd=True), "", 'unknown field "spec.pausd"'),
    "something in whole": (gpus({"index": 0, "whole": {"x": 1}}), "", 'unknown field "spec.gpus[0].whole.x"'),
    "planned without gpus": (plan("n1", planned={}), "spec.planned.gpus", "Required value"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(cluster: RealCluster, name: str) -> None:
    answer = call(cluster.admin, "POST", PLANS, ACCEPTED[name], dryRun="All", fieldValidation="Strict")
    if "planned" in ACCEPTED[name]["spec"] and ACCEPTED[name]["spec"]["planned"] is not None:
        # The schema accepts it; by the policy it is the controller's alone.
        assert answer.status == 403, answer.message
        assert "spec.planned is written by the gpuplan controller" in answer.message
    else:
        assert answer.allowed, answer.message


@pytest.mark.parametrize("name", REFUSED)
def test_refused(cluster: RealCluster, name: str) -> None:
    body, field, sentence = REFUSED[name]
    answer = call(cluster.admin, "POST", PLANS, body, dryRun="All", fieldValidation="Strict")
    assert answer.status == (422 if field else 400), answer.message
    assert sentence in answer.message
    if field:
        fields = [cause["field"] for cause in answer.body["details"]["causes"]]
        assert field in fields


@pytest.mark.parametrize("name", [name for name, case in REFUSED.items() if case[1] and "planned" not in name])
def test_what_kubectl_prints(cluster: RealCluster, name: str) -> None:
    body, field, sentence = REFUSED[name]
    printed = cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(body))
    assert "is invalid" in printed
    assert sentence in printed
    assert field in printed


def test_node_name_never_changes(cluster: RealCluster) -> None:
    apply.create(cluster.admin, PLANS, plan("immutable"))
    answer = call(cluster.admin, "PATCH", f"{PLANS}/immutable", {"spec": {"nodeName": "other"}}, MERGE)
    assert answer.status == 422
    assert "nodeName cannot change; create a plan for the other node" in answer.message
    apply.delete(cluster.admin, f"{PLANS}/immutable")


def test_status_is_a_subresource_with_a_schema(cluster: RealCluster) -> None:
    created = apply.create(cluster.admin, PLANS, {**plan("statusful"), "status": {"observedGeneration": 3}})
    assert created["status"] == {"observedGeneration": -1}, "no plan passes for reconciled before an agent has read it"
    path = f"{PLANS}/statusful"
    written = apply.apply_status(
        cluster.agent_of("statusful"),
        path,
        {**plan("statusful"), "status": {"observedGeneration": 1, "conditions": [STATUS_CONDITION]}},
        manager=names.AGENT_MANAGER,
    )
    assert written["status"]["conditions"] == [STATUS_CONDITION]
    assert written["metadata"]["generation"] == 1
    bad = {"status": {"conditions": [{**STATUS_CONDITION, "status": "Maybe"}]}}
    answer = call(cluster.agent_of("statusful"), "PATCH", f"{path}/status", bad, MERGE)
    assert answer.status == 422
    assert "conditions[0].status" in answer.message
    apply.delete(cluster.admin, path)


def test_a_plan_from_before_the_default_reads_like_a_new_one(cluster: RealCluster) -> None:
    """As after an upgrade; under another group, so that no other test meets a definition in between."""
    crd = definition()
    crd["spec"]["group"] = "older.test"
    crd["metadata"]["name"] = f"{names.PLURAL}.older.test"
    crd["spec"]["names"]["shortNames"], crd["spec"]["names"]["categories"] = [], []
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    default = status.pop("default")
    apply.create(cluster.admin, CRDS, crd)
    plans = f"/apis/older.test/{names.VERSION}/{names.PLURAL}"
    body = {**plan("n1"), "apiVersion": f"older.test/{names.VERSION}"}
    eventually(lambda: call(cluster.admin, "POST", plans, body).allowed, "the kind is served")
    assert "status" not in apply.get(cluster.admin, f"{plans}/n1")

    status["default"] = default
    apply.merge_patch(cluster.admin, f"{CRDS}/{crd['metadata']['name']}", {"spec": crd["spec"]})

    eventually(lambda: apply.get(cluster.admin, f"{plans}/n1").get("status") == default, "the default is read")
    apply.delete(cluster.admin, f"{CRDS}/{crd['metadata']['name']}")


def test_names_and_columns(cluster: RealCluster) -> None:
    apply.create(cluster.admin, PLANS, plan("columns", mode="Manual", paused=True))
    summary = {"observedGeneration": 1, "summary": {"mode": "Manual", "gpus": 2, "model": "T4", "whole": "0/2"}}
    body = {**plan("columns"), "status": summary}
    apply.apply_status(cluster.agent_of("columns"), f"{PLANS}/columns", body, manager=names.AGENT_MANAGER)
    short = cluster.kubectl("get", "gpp", "columns").splitlines()
    assert short[0].split() == [
        "NAME",
        "MODE",
        "PAUSED",
        "GPUS",
        "MODEL",
        "MIG",
        "MPS",
        "WHOLE",
        "READY",
        "REASON",
        "AGE",
    ]
    assert short[1].split()[:6] == ["columns", "Manual", "true", "2", "T4", "0/2"]
    wide = cluster.kubectl("get", "gpu", "-o", "wide").splitlines()
    assert wide[0].split()[-3:] == ["BACKEND", "DRIVER", "AGENT"]
    explained = cluster.kubectl("explain", "gpp.spec.gpus.mig")
    assert "The desired instances of this GPU" in " ".join(explained.split())
    apply.delete(cluster.admin, f"{PLANS}/columns")


def test_the_crd_is_structural_and_not_warned_about(cluster: RealCluster) -> None:
    crd = apply.get(cluster.admin, f"{CRDS}/{names.PLURAL}.{names.GROUP}")
    conditions = {c["type"]: c["status"] for c in crd["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in conditions
    assert "Terminating" not in conditions


def _widen(schema: Any, factor: int) -> Any:
    """Every bound that the cost estimate multiplies, times `factor`."""
    if isinstance(schema, list):
        return [_widen(item, factor) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value * factor if key in ("maxItems", "maxLength") and isinstance(value, int) else _widen(value, factor)
        for key, value in schema.items()
    }


@pytest.mark.parametrize("factor", [1, 8])  # of each bound: lists in lists cost the cube of it
def test_costs_of_the_rules_leave_room(cluster: RealCluster, factor: int) -> None:
    crd = _widen(copy.deepcopy(definition()), factor)
    crd["spec"]["group"] = "wide.test"
    crd["metadata"]["name"] = f"{names.PLURAL}.wide.test"
    answer = call(cluster.admin, "POST", CRDS, crd, dryRun="All")
    assert answer.allowed, answer.message


def test_a_rule_that_costs_too_much_would_be_refused(cluster: RealCluster) -> None:
    """The estimate is at work: what the research saw refused is refused."""
    crd = copy.deepcopy(definition())
    crd["spec"]["group"] = "wide.test"
    crd["metadata"]["name"] = f"{names.PLURAL}.wide.test"
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    item = root["properties"]["spec"]["properties"]["gpus"]["items"]
    item["x-kubernetes-validations"] = [{"rule": "true", "messageExpression": "'GPU ' + string(self.index)"}]
    answer = call(cluster.admin, "POST", CRDS, crd, dryRun="All")
    assert answer.status == 422
    assert "cost" in answer.message
