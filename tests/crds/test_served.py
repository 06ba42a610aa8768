"""What an API server makes of the definition: the status of a plan that no agent has read, and what kubectl prints."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crds.v1alpha1 import names
from crds.v1alpha1.plan import GPUPartitionPlan
from deploy.generate.crd import definition
from kube import apply, clients
from tests.apiserver import ApiServer
from tests.builders.objects import manifest, plan
from tests.crds.status_transitions import FULL, body
from tests.sandbox.apiserver.probe import Kubectl

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PLANS = f"/apis/{names.API_VERSION}/{names.PLURAL}"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def test_a_plan_that_no_agent_has_read_has_observed_generation_minus_1(server: ApiServer) -> None:
    api = clients.for_url(server.url)
    apply.create(api, CRDS, definition())

    created = apply.create(api, PLANS, manifest(plan("n1")))
    assert created["status"] == {"observedGeneration": -1}
    assert apply.get(api, f"{PLANS}/n1")["status"] == {"observedGeneration": -1}
    GPUPartitionPlan.read(created)

    condition = (FULL.conditions or [])[0].wire()
    theirs = apply.apply_status(
        api, f"{PLANS}/n1", body("n1", {"conditions": [condition]}), manager=names.CONTROLLER_MANAGER
    )
    assert theirs["status"] == {"observedGeneration": -1, "conditions": [condition]}

    ours = apply.apply_status(api, f"{PLANS}/n1", body("n1", FULL.wire()), manager=names.AGENT_MANAGER)
    assert ours["status"] == FULL.wire()
    assert (
        apply.apply(api, f"{PLANS}/n1", manifest(plan("n1", spec={"paused": True})), manager="people")["status"]
        == FULL.wire()
    )


def test_the_columns_that_kubectl_prints(server: ApiServer, tmp_path: Path) -> None:
    api = clients.for_url(server.url)
    apply.create(api, CRDS, definition())
    apply.create(api, PLANS, manifest(plan("n1", spec={"paused": True})))
    apply.apply_status(api, f"{PLANS}/n1", body("n1", FULL.wire()), manager=names.AGENT_MANAGER)
    (tmp_path / "kubeconfig").write_text(server.kubeconfig())
    kubectl = Kubectl(tmp_path / "kubeconfig", tmp_path / "cache")

    head, row = kubectl("get", "gpp", "-o", "wide").splitlines()

    assert head.split() == [
        *("NAME", "MODE", "PAUSED", "GPUS", "MODEL", "MIG", "MPS", "WHOLE", "READY", "REASON", "AGE"),
        *("BACKEND", "DRIVER", "AGENT"),
    ]
    assert row.split()[:10] == ["n1", "Auto", "true", "1", "H100-80GB", "1/2", "0/3", "0/1", "True", "Confirmed"]
    assert row.split()[-3:] == ["gpuplan", "d", "a"]
