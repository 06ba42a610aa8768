"""Other ways to install deploy/ than the suite's own: by kustomize, and into a namespace of another name.

A control plane of its own, for policies and rights are of the whole cluster.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crds.v1alpha1 import names
from deploy.generate import manifests
from tests.e2e.real_cluster import AGENT, CONTROLLER, CRD, MANIFESTS, PLANS, RealCluster, call, plan
from tests.e2e.rig.controlplane import Binaries, RealControlPlane
from tests.e2e.rig.controlplane.tenants import manifests_of, objects_of
from tests.waiting import eventually

ELSEWHERE = "team-gpus"


@pytest.fixture
def empty(programs: Binaries, tmp_path: Path) -> Iterator[RealCluster]:
    plane = RealControlPlane(programs, directory=tmp_path / "plane")
    plane.start()
    try:
        found = RealCluster(plane, tmp_path)
        found.kubectl("apply", "-f", str(CRD), check=True)
        found.wait_established()
        yield found
    finally:
        plane.stop()


def test_kustomize_ships_the_same_in_the_same_order(empty: RealCluster) -> None:
    made = list(objects_of(empty.kubectl("kustomize", str(MANIFESTS.parent), check=True)))
    assert _words(made) == _words(list(manifests_of(MANIFESTS)))
    printed = empty.kubectl("apply", "-k", str(MANIFESTS.parent), check=True)
    assert printed.count(" created") == len(made)


def _words(found: Any) -> Any:
    """Without line breaks: kustomize doubles those of folded text."""
    if isinstance(found, dict):
        return {key: _words(item) for key, item in found.items()}
    if isinstance(found, list):
        return [_words(item) for item in found]
    return " ".join(found.split()) if isinstance(found, str) else found


def test_another_namespace(empty: RealCluster, helm: Path) -> None:
    """By the chart, for the policies know their accounts by name."""
    printed = manifests.template(helm, "--namespace", ELSEWHERE, "--set", "namespace.create=true").stdout
    empty.kubectl("apply", "-f", "-", stdin=printed, check=True)
    planned = plan("somewhere", planned={"gpus": []})
    eventually(lambda: call(empty.admin, "POST", PLANS, planned, dryRun="All").status == 403, "policies are in force")

    controller = empty.bearer(empty.kubectl("create", "token", CONTROLLER, "-n", ELSEWHERE, check=True).strip())
    eventually(lambda: call(controller, "POST", PLANS, plan("somewhere")).allowed, "the controller creates plans")
    refused = call(controller, "POST", PLANS, plan("elsewhere", mode="Manual"))
    assert refused.status == 403
    assert "a new plan holds nodeName only" in refused.message

    leases = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": CONTROLLER}, "spec": {}}
    assert call(controller, "POST", leases.format(ELSEWHERE), lease).allowed
    assert call(controller, "POST", leases.format("default"), lease).status == 403

    agent = empty.bearer(empty.kubectl("create", "token", AGENT, "-n", ELSEWHERE, check=True).strip())
    refused = call(agent, "POST", leases.format(ELSEWHERE), {**lease, "metadata": {"name": names.agent_lease("n")}})
    assert "the token is not bound to a pod on a node" in refused.message
