"""What kube-scheduler has learnt since 1.36, and that we plan by it: groups of pods, extended resources from DRA.

Groups are off by default, in 1.37 too: this control plane has them on, in the version of their API that it has.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from controller.api.pod_groups import KUBERNETES
from controller.cache.informers import SchedulingInformers
from controller.model.results import PlanningResult
from controller.model.scheduling import SchedulingContext
from controller.model.views import PodView
from controller.planning import plan
from kube import apply
from tests.builders.models import H100
from tests.builders.views import pod_view
from tests.controller.planner.builders import cluster, mig, server
from tests.e2e.random_pods import HOSTNAME, Json
from tests.e2e.real_cluster import MERGE, NODES, call
from tests.e2e.rig.controlplane import Binaries
from tests.e2e.scheduler_rig import SchedulerRig
from tests.waiting import eventually

NAMESPACE = "red"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DRA = "/apis/resource.k8s.io/v1"
HALF, SEVENTH = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb"
FIRST_MINOR = 36
GROUPS_OF_1_36 = ("v1alpha2", "GenericWorkload=true,GangScheduling=true")
GROUPS = ("v1beta1", "GenericWorkload=true")


def groups(version: str) -> tuple[str, str]:
    """Version of the API of groups, and the gates that switch them on."""
    return GROUPS_OF_1_36 if version.startswith("1.36.") else GROUPS


@pytest.fixture(scope="module")
def rig(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerRig]:
    if int(programs.kubernetes.split(".")[1]) < FIRST_MINOR:
        pytest.skip("this kube-scheduler has neither, as it comes")
    version, gates = groups(programs.kubernetes)
    on = [f"--feature-gates={gates}"]
    flags = {"kube-apiserver": [f"--runtime-config={KUBERNETES}/{version}=true", *on], "kube-scheduler": on}
    found = SchedulerRig(programs, tmp_path_factory.mktemp("newer"), flags)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def informers(rig: SchedulerRig) -> Iterator[SchedulingInformers]:
    found = SchedulingInformers(rig.api, {}, awake=threading.Event())
    yield found
    found.stop()
    rig.clear()


def create_node(rig: SchedulerRig, name: str, **amounts: str) -> None:
    status = {"capacity": {"cpu": "8", "memory": "8Gi", "pods": "110"}}
    rig.create_nodes(
        [{"metadata": {"name": name, "labels": {HOSTNAME: name}}, "status": with_amounts(status, amounts)}]
    )


def with_amounts(status: Json, amounts: Mapping[str, str]) -> Json:
    there = {**status["capacity"], **amounts}
    return {"capacity": there, "allocatable": there}


def advertise(rig: SchedulerRig, node: str, **amounts: str) -> None:
    body = {"status": {"capacity": amounts, "allocatable": amounts}}
    assert call(rig.api, "PATCH", f"{NODES}/{node}/status", body, MERGE).allowed


def create_pod(rig: SchedulerRig, name: str, resource: str, **spec: object) -> None:
    container = {"name": "main", "image": "none", "resources": {"limits": {resource: "1"}}}
    apply.create(rig.api, PODS, {"metadata": {"name": name}, "spec": {"containers": [container], **spec}})


def pod(rig: SchedulerRig, name: str) -> Json:
    return apply.get(rig.api, f"{PODS}/{name}")


def where(rig: SchedulerRig) -> dict[str, str]:
    """Which pod is bound to which node."""
    pods = rig.all_of(PODS)
    return {each["metadata"]["name"]: each["spec"]["nodeName"] for each in pods if each["spec"].get("nodeName")}


def refused(rig: SchedulerRig) -> list[PodView]:
    """Those for which the scheduler has found no place."""
    return [view for view in map(pod_view, rig.all_of(PODS)) if view.unschedulable and not view.node]


def planned(pending: list[PodView], context: SchedulingContext) -> PlanningResult:
    """On one H100, empty, of the node `empty`."""
    snapshot = cluster(server("empty", mig(gpu_model=H100), labels={HOSTNAME: "empty"}), pending=pending)
    return plan(replace(snapshot, context=context))


def test_as_many_pods_are_planned_as_their_group_needs(rig: SchedulerRig, informers: SchedulingInformers) -> None:
    version, _ = groups(rig.plane.version)
    path = f"/apis/{KUBERNETES}/{version}/namespaces/{NAMESPACE}/podgroups"
    create_node(rig, "empty")
    rig.create([(path, {"metadata": {"name": "train"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})])
    for number in range(3):
        create_pod(rig, f"train-{number}", HALF, schedulingGroup={"podGroupName": "train"})
    pending = eventually(lambda: found if len(found := refused(rig)) == 3 else None, "all three are refused")
    for each in pending:
        informers.require(each)
    key = (KUBERNETES, NAMESPACE, "train")
    eventually(lambda: informers.context().pod_groups.get(key) == 2, "its number is known", seen=informers.watch_errors)

    result = planned(pending, informers.context())
    assert len(result.placed) == 2, "a half of the GPU each"
    advertise(rig, "empty", **{HALF: "1"})
    assert not where(rig)
    advertise(rig, "empty", **{HALF: "2"})
    eventually(lambda: len(where(rig)) == 2, "kube-scheduler binds as many", seen=lambda: rig.all_of(PODS))

    apply.delete(rig.api, f"{path}/train")


def test_what_a_device_class_maps_is_planned_as_the_scheduler_takes_it(
    rig: SchedulerRig, informers: SchedulingInformers
) -> None:
    """A node that advertises some of it serves pods by its device plugin, every other node by DRA."""
    create_node(rig, "plugin", **{SEVENTH: "1"})
    create_node(rig, "driver")
    create_node(rig, "empty")
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    slice_spec = {"driver": "gpu.example.com", "nodeName": "driver", "pool": pool, "devices": [{"name": "seventh"}]}
    of_nvidia = {"driver": "gpu.nvidia.com", "nodeName": "plugin", "pool": pool | {"name": "nothing"}}
    rig.create(
        [
            (f"{DRA}/resourceslices", {"metadata": {"name": "driver"}, "spec": slice_spec}),
            (f"{DRA}/resourceslices", {"metadata": {"name": "nvidia"}, "spec": of_nvidia}),
            (f"{DRA}/deviceclasses", {"metadata": {"name": "seventh"}, "spec": {"extendedResourceName": SEVENTH}}),
        ]
    )
    for node in ("plugin", "driver", "empty"):
        create_pod(rig, node, SEVENTH, nodeSelector={HOSTNAME: node})
    eventually(lambda: where(rig).keys() == {"plugin", "driver"}, "two are bound", seen=lambda: rig.all_of(PODS))
    (waits,) = eventually(lambda: refused(rig), "one waits", seen=lambda: rig.all_of(PODS))
    assert (waits.name, by_claim(rig, "plugin"), by_claim(rig, "driver")) == ("empty", False, True)
    informers.require(waits)
    eventually(lambda: SEVENTH in informers.context().dra_resources, "the mapping is known")
    assert informers.dra_lists("plugin") is None
    informers.require_dra()
    eventually(lambda: informers.dra_lists("plugin"), "NVIDIA's slice is known", seen=informers.watch_errors)
    assert informers.dra_lists("driver") is False, "it lists no GPUs of NVIDIA's"

    result = planned([waits], informers.context())
    assert [one.node for one in result.placed] == ["empty"], result.unplaced
    advertise(rig, "empty", **{SEVENTH: "1"})
    eventually(lambda: "empty" in where(rig), "the scheduler takes what is advertised now")
    assert not by_claim(rig, "empty")

    for path in (f"{DRA}/deviceclasses/seventh", f"{DRA}/resourceslices/driver", f"{DRA}/resourceslices/nvidia"):
        apply.delete(rig.api, path)
    eventually(lambda: informers.dra_lists("plugin") is False, "none is left")


def by_claim(rig: SchedulerRig, name: str) -> bool:
    return "extendedResourceClaimStatus" in pod(rig, name)["status"]
