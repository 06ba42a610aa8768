"""The rights of gpuplan's accounts: each one is used by this suite, and nothing is refused.

Runs after every other test of the suite. First it uses what only some values grant, or what only rare pods and nodes
need; then it compares the rights of every release that was installed with the API server's audit log. Take a right that
nothing uses out of the chart, or write the test that needs it.
"""

import json
from collections.abc import Iterator

import pytest

from crds.v1alpha1 import names
from kube import apply
from tests.builders.objects import config_map, lease
from tests.e2e.containers.conftest import left_out
from tests.e2e.containers.lab import START_SECONDS, Lab
from tests.e2e.containers.test_product import AGENT as AGENTS
from tests.e2e.containers.test_product import CONTROLLER as CONTROLLERS
from tests.e2e.containers.test_product import pod
from tests.e2e.real_cluster import AGENT, CONTROLLER, LEASES, PLANS, call, plan
from tests.e2e.rig.controlplane.granted import unused
from tests.e2e.test_open_port import account, answer
from tests.e2e.test_rbac import READ_BY_FILTERS, resources
from tests.waiting import eventually

EVENTS = "/api/v1/namespaces/default/events"
SCHEDULER_CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "pluginConfig": [
                {
                    "name": "PodTopologySpread",
                    "args": {
                        "defaultingType": "List",
                        "defaultConstraints": [
                            {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
                        ],
                    },
                }
            ]
        }
    ],
}
SETTINGS = config_map("scheduler", {"config.yaml": json.dumps(SCHEDULER_CONFIG)}, namespace="kube-system")
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
ELSEWHERE = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": {"matchLabels": {"app": "rival"}},
    "namespaceSelector": {"matchLabels": {"team": "other"}},
}
OLD_LEASE = lease(names.agent_lease("gone"), {"renewTime": "2026-01-01T00:00:00.000000Z"})
VALUES = {
    "scheduler": {"config": {"name": "scheduler"}},
    "agent": {"settings": {"writeAllocatable": True}},
    "controller": {"settings": {"orphanPlanSeconds": 1}},
}


def titles(lab: Lab, account: str, verb: str) -> set[str]:
    """Resources on which an account has used a verb."""
    return {right.title for right in lab.rights_used() if (right.account, right.verb) == (account, verb)}


def is_gone(lab: Lab, path: str) -> bool:
    return call(lab.cluster.admin, "GET", path).status == 404


@pytest.fixture(scope="module")
def served(lab: Lab) -> set[str]:
    """What this API server has: device classes are newer than its oldest version."""
    return {resource.title for resource in resources(lab.cluster.admin)}


@pytest.fixture(scope="module", autouse=True)
def with_every_right(lab: Lab) -> Iterator[None]:
    """The values that grant more than the default ones."""
    lab.install()
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(SETTINGS))
    lab.upgrade(VALUES)
    lab.label(gpu_partitioning="auto")
    eventually(lambda: lab.are_ready(CONTROLLERS, AGENTS), "these values are in force", START_SECONDS, seen=lab.report)
    eventually(lambda: lab.condition("Ready") == "True", "the plan is Ready", START_SECONDS, seen=lab.plan)
    yield
    for kind, name in (("pod", "constrained"), ("pod", "written"), ("pvc", "data")):
        lab.kubectl("delete", kind, name, "--ignore-not-found")


def test_the_configuration_of_the_scheduler_is_read_and_what_its_filters_read_is_watched(
    lab: Lab, served: set[str]
) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ELSEWHERE]}}
    constrained = pod("constrained", "nvidia.com/mig-1g.10gb")
    constrained["spec"] |= {"volumes": volumes, "affinity": affinity}
    for body in (CLAIM, constrained):
        lab.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    watched = served & set(READ_BY_FILTERS)
    assert len(watched) >= len(READ_BY_FILTERS) - 1
    eventually(lambda: watched <= titles(lab, CONTROLLER, "watch"), "all are watched", START_SECONDS, seen=lab.report)
    assert "configmaps" in titles(lab, CONTROLLER, "get")


def test_with_write_allocatable_the_agent_writes_what_the_node_has(lab: Lab) -> None:
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(pod("written", "nvidia.com/mig-2g.20gb")))

    lab.wait_running("written")

    assert "nodes/status" in titles(lab, AGENT, "patch")


def test_a_plan_and_a_lease_without_a_node_are_deleted(lab: Lab) -> None:
    apply.create(lab.cluster.admin, PLANS, plan("gone"))
    apply.create(lab.cluster.admin, LEASES, OLD_LEASE)

    eventually(lambda: is_gone(lab, f"{PLANS}/gone"), "the plan is deleted", seen=lab.report)
    eventually(lambda: is_gone(lab, f"{LEASES}/{names.agent_lease('gone')}"), "the Lease is deleted", seen=lab.report)


def test_an_event_that_the_controller_before_has_written_is_renewed(lab: Lab) -> None:
    def warned() -> bool:
        found = apply.get(lab.cluster.admin, EVENTS)["items"]
        return any("gpu-partitioning=mgi" in event["message"] for event in found)

    lab.label(gpu_partitioning="mgi")
    eventually(warned, "the label is warned about", seen=lab.report)
    lab.replace(CONTROLLERS)
    eventually(
        lambda: "events" in titles(lab, CONTROLLER, "patch"), "the Event is renewed", START_SECONDS, seen=lab.report
    )
    lab.label(gpu_partitioning="auto")


def test_the_controller_asks_who_may_read_its_decisions(lab: Lab) -> None:
    eventually(lambda: lab.are_ready(CONTROLLERS), "those that were replaced serve", START_SECONDS, seen=lab.report)
    name = min(lab.pods_of(CONTROLLERS))  # one that stands by answers as well
    shown = json.loads(lab.kubectl("-n", names.NAMESPACE, "get", name, "-o", "json"))
    port = shown["spec"]["containers"][0]["ports"][0]["containerPort"]

    code, words = answer(port, "/decisions", account(lab.cluster, "stranger"), host=shown["status"]["podIP"])

    assert (code, "may not list pods in all namespaces" in words) == (403, True)
    assert {"tokenreviews.authentication.k8s.io"} <= titles(lab, CONTROLLER, "create")


def test_nothing_was_refused(lab: Lab) -> None:
    assert lab.forbidden() == []


def test_every_right_was_used(lab: Lab, served: set[str], request: pytest.FixtureRequest) -> None:
    if why := left_out(request.session):
        pytest.skip(f"which rights are used shows only after all tests of this suite: {why}")
    judged = {right: template for right, template in lab.granted.items() if right.title in served}
    assert len(judged) > 40
    assert unused(judged, lab.rights_used()) == []
