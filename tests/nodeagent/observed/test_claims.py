"""Pods that hold a GPU by a claim of NVIDIA's DRA driver: what they hold is neither destroyed nor given to another."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from kube.kubelet_api.paths import KubeletPaths
from nodeagent.handover.host_paths import on_host
from nodeagent.handover.rival_sockets import driver_sockets
from nodeagent.hardware.driver import ComputeInstance, GpuInstance, ObservedGpu
from nodeagent.observed.claims import located
from nodeagent.observed.kubelet import CheckpointEntry, Kubelet
from nodeagent.observed.usage import Usage
from partitioning.layouts import Instance
from tests import incidents
from tests.clock import Clock
from tests.drawn import cells, thorough
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.halves import replace_both
from tests.nodeagent.items import mig, mps
from tests.nodeagent.world import World

HALVES = ("3g.40gb", 0), ("3g.40gb", 4)
SECOND_HALF = "gpu-0-mig-3g40gb-9-4"
"""As the driver of today names it: minor, profile, id of the GPU instance profile, start."""
WAYS = [("List",), ("record",), ("driver's record",), ("List", "record", "driver's record")]
"""Before Kubernetes 1.34 the List shows no claims."""


def device_at(world: World, start: int) -> str:
    found = next(i.uuid for i in world.gpu().instances if i.placed.start == start)
    assert found
    return found


NAMES = [SECOND_HALF, "gpu-0-mig-9-4-4", "gpu-0-mig-1c3g40gb-9-4"]


@pytest.mark.parametrize(("shown", "name", "before"), cells(WAYS, NAMES, [True, False]), ids=str)
def test_what_a_claim_holds_is_kept_and_goes_to_no_other_pod(
    make_world: MakeWorld, shown: tuple[str, ...], name: str, before: bool
) -> None:
    """Held before the agent starts, or later."""
    world = make_world(cut(*HALVES), cut(("7g.80gb", 0)))
    if not before:
        world.settle(4)
    held, free = device_at(world, 4), device_at(world, 0)
    holder = world.pod_of_claim(name, held, *shown)
    world.settle(4)
    assert {device.id for device in world.plugin.config.advertised()} == {free, world.gpu(1).instances[0].uuid}

    world.apply(mig(0, ("7g.80gb", 0)), mig(1, ("3g.40gb", 0)))
    world.settle(20)

    assert world.layout() == "3g.40gb at 4", "the free half went, and what the claim holds did not"
    assert world.layout(1) == "3g.40gb at 0", "another GPU is not affected"
    assert f"held by pod default/{holder[1]}, which got it as gpu.nvidia.com/{name}" in world.gpu_status()["message"]
    world.finish(holder)
    world.settle()
    assert world.layout() == "7g.80gb at 0"


@pytest.mark.parametrize("shown", WAYS, ids="+".join)
def test_a_whole_gpu_that_a_claim_holds(make_world: MakeWorld, shown: tuple[str, ...]) -> None:
    world = make_world(plain(), plain())
    holder = world.pod_of_claim("gpu-1", world.gpu(1).uuid, *shown)
    world.apply(mps(1, 10, 10))
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu": 1}
    world.finish(holder)
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu": 1, "nvidia.com/gpu-10gb": 2}


@pytest.mark.parametrize(
    "name",
    ["gpu-7", "gpu-0-mig-3g40gb-9-2", *thorough("gpu-0-mig-1g10gb-19-4", "gpu-0-mig-9-4-2", "gpu-vfio-0", "else")],
)
def test_a_device_that_is_not_found_may_be_any(make_world: MakeWorld, name: str) -> None:
    world = make_world(cut(*HALVES), cut(("7g.80gb", 0)))
    world.settle(4)
    holder = world.pod_of_claim(name, device_at(world, 4), "List")
    world.settle(4)
    assert world.plugin.config.advertised() == ()

    replace_both(world)
    world.settle(20)

    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert world.partitions(1) == ["mig-7g.80gb Unknown"]
    assert f"pod default/{holder[1]} holds gpu.nvidia.com/{name}, an id of" in world.gpu_status()["message"]


def test_once_seen_it_is_held_until_the_pod_ends_whatever_becomes_of_the_records(make_world: MakeWorld) -> None:
    world = make_world(cut(*HALVES))
    holder = world.pod_of_claim(SECOND_HALF, device_at(world, 4), "record")
    world.settle(4)
    world.kubelet.entries = ()
    world.restart()
    replace_both(world)
    for _ in range(3):
        world.clock.now += 120
        world.settle(5)
    assert world.layout() == "3g.40gb at 4"
    world.force_delete(holder)
    world.settle(10)
    assert world.layout() == "3g.40gb at 4", "its container may run on"
    world.end_container(holder)
    world.wait(31)
    assert world.layout() == "7g.80gb at 0"


def test_what_a_restart_of_the_node_took_concerns_no_other(make_world: MakeWorld) -> None:
    world = make_world(cut(*HALVES))
    world.pod_of_claim(SECOND_HALF, device_at(world, 4), "List", "driver's record")
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle(4)
    world.reboot()
    incidents.enable_mig(world.machine)
    world.restart()
    world.settle()
    assert world.layout() == "7g.80gb at 0"


# What is no holder.

MIG_UUID = "MIG-3c1b0a6e-5f0d-5b0e-8c8e-000000000001"


def kubelet_record(pod_uid: str, driver: str, *devices: str) -> dict[str, Any]:
    """As Kubernetes 1.36 writes it."""
    state = {"Devices": [{"PoolName": "n", "DeviceName": d, "RequestNames": [], "CDIDeviceIDs": []} for d in devices]}
    claim = {
        "ClaimUID": "c",
        "ClaimName": "c",
        "Namespace": "d",
        "PodUIDs": {pod_uid: {}},
        "DriverState": {driver: state},
    }
    if not devices:
        claim["DriverState"] = {driver: {"Devices": None}}
    data = {"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1", "ClaimInfoStateList": [claim]}
    return {"Data": json.dumps(data), "Checksum": 1}


def driver_record(pod_uid: str, *, driver: str = "gpu.nvidia.com", state: str = "PrepareCompleted") -> dict[str, Any]:
    """As the driver's version 25.12 writes it."""
    result = {"request": "gpu", "driver": driver, "pool": "n", "device": SECOND_HALF}
    reserved = [{"resource": "pods", "name": "a", "uid": pod_uid}]
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
    device = {"Requests": ["gpu"], "PoolName": "n", "DeviceName": SECOND_HALF, "CDIDeviceIDs": []}
    concrete = {"parentMinor": 0, "giId": 1, "ciId": 0, "migUUID": MIG_UUID, "parentUUID": "GPU-1"}
    group = {"devices": [{"gpu": None, "mig": {"concrete": concrete, "device": device}}], "configState": {}}
    claim: dict[str, Any] = {"checkpointState": state, "status": status, "preparedDevices": [group]}
    if state == "PrepareStarted":
        del claim["preparedDevices"]
    if driver != "gpu.nvidia.com":
        claim["preparedDevices"] = []
    return {"checksum": 1, "v2": {"checksum": 2, "preparedClaims": {"c": claim}}}


def older_driver_record(pod_uid: str) -> dict[str, Any]:
    content = driver_record(pod_uid)
    (claim,) = content.pop("v2")["preparedClaims"].values()
    (device,) = claim["preparedDevices"][0]["devices"]
    device["mig"] = {"info": {"uuid": MIG_UUID}, "device": device["mig"]["device"]}
    return {**content, "v1": {"preparedClaims": {"c": {**claim, "checkpointState": ""}}}}


NAMED = f"gpu.nvidia.com/{SECOND_HALF}"
RECORDED = f"{NAMED} {MIG_UUID}"


@pytest.mark.parametrize(
    ("kubelets", "drivers", "ids"),
    [
        pytest.param(kubelet_record("u", "gpu.nvidia.com", SECOND_HALF), None, {NAMED}, id="kubelet"),
        pytest.param({"version": "v1", "entries": [], "checksum": 1}, None, set(), id="kubelet 1.31, empty"),
        pytest.param(kubelet_record("u", "gpu.nvidia.com"), None, set(), id="not prepared: no driver was registered"),
        pytest.param(kubelet_record("u", "compute-domain.nvidia.com", "channel-0"), None, set(), id="another driver"),
        pytest.param(None, driver_record("u"), {RECORDED}, id="driver"),
        pytest.param(None, driver_record("u", state="PrepareStarted"), {NAMED}, id="driver, in the act"),
        pytest.param(None, driver_record("u", driver="gpu.example.com"), set(), id="driver of others' results"),
        pytest.param(None, older_driver_record("u"), {RECORDED}, id="older driver"),
        pytest.param(None, {"checksum": 1, "v1": {}, "v2": {"preparedClaims": None}}, set(), id="driver, empty"),
        pytest.param({"Data": "no JSON"}, driver_record("u"), {RECORDED}, id="one of them is broken"),
        pytest.param({"version": "v9"}, driver_record("u"), {RECORDED}, id="one of them is of another form"),
    ],
)
def test_records_of_prepared_claims(tmp_path: Path, kubelets: Any, drivers: Any, ids: set[str]) -> None:
    paths = KubeletPaths(tmp_path)
    for content, path in ((kubelets, paths.claims), (drivers, paths.driver_checkpoint("gpu.nvidia.com"))):
        if content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content))
    found = Kubelet(tmp_path, clock=Clock(), wall_clock=Clock()).checkpoint()
    assert {(entry.pod_uid, i) for entry in found for i in entry.ids} == {("u", i) for i in ids}


@pytest.mark.parametrize("target", ["", "/data/kubelet", "../data/kubelet"])
def test_the_records_are_read_through_the_hosts_root(tmp_path: Path, target: str) -> None:
    """Also where the kubelet's directory is a link, which leads elsewhere in the agent's own container."""
    kubelet_dir, seen = Path("/gpuplan-lib/kubelet"), tmp_path / "host/gpuplan-lib/kubelet"
    seen.parent.mkdir(parents=True)
    if target:
        seen.symlink_to(target)
        seen = tmp_path / "host/data/kubelet"
    seen.mkdir(parents=True)
    KubeletPaths(seen).claims.write_text(json.dumps(kubelet_record("u", "gpu.nvidia.com", "gpu-0")))
    kubelet = Kubelet(kubelet_dir, clock=Clock(), wall_clock=Clock(), host=tmp_path / "host")
    assert kubelet.checkpoint() == (CheckpointEntry(pod_uid="u", ids=("gpu.nvidia.com/gpu-0",)),)


@pytest.mark.parametrize("ended", [True, False], ids=["a pod that ended", "a pod that the API does not have"])
def test_a_record_that_outlived_its_pod_holds_nothing(make_world: MakeWorld, ended: bool) -> None:
    world = make_world(cut(*HALVES))
    entry = CheckpointEntry(pod_uid="no-pod", ids=(NAMED,))
    if ended:
        holder = world.pod_of_claim(SECOND_HALF, device_at(world, 4), "record")
        (entry,) = world.kubelet.entries
        world.finish(holder)
    world.kubelet.entries = (entry,)
    replace_both(world)
    world.settle(4)
    world.clock.now += 70
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_claim_that_the_kubelet_did_not_prepare_freezes_nothing(make_world: MakeWorld) -> None:
    """An invented claim, one of another driver, one of a pod that was bound by hand: in no record, and in no List."""
    world = make_world(cut(*HALVES))
    world.settle(4)
    key = world.pod_of_claim(SECOND_HALF, "nothing", *())
    unseen = world.pod_of_claim(SECOND_HALF, "nothing", *())
    world.kubelet.known.discard(unseen)
    world.pods[unseen]["status"] = {"phase": "Pending"}
    replace_both(world)
    world.settle()
    assert world.layout() == "7g.80gb at 0"
    assert key in world.pods


@pytest.mark.parametrize(
    ("links", "path", "found"),
    [
        ({}, "/a/b", "a/b"),
        ({"a": "/c"}, "/a/b", "c/b"),
        ({"a": "c", "c": "/d/e"}, "/a/b", "d/e/b"),
        ({"a/b": "../c"}, "/a/b", "a/../c"),
        ({"a": "/b", "b": "/a"}, "/a/x", "a/x"),
    ],
)
def test_paths_on_the_host(tmp_path: Path, links: dict[str, str], path: str, found: str) -> None:
    for name, target in links.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(target)
    assert on_host(tmp_path, Path(path)) == tmp_path / found


# Where it is.


def gpu(index: int, minor: int | None, *places: tuple[str, int, int], problem: str = "") -> ObservedGpu:
    instances = tuple(
        GpuInstance(
            id=n,
            placed=Instance(start=start, size=size, profile=profile),
            compute_slices=3,
            compute=(ComputeInstance(id=0, slices=3, uuid=uuid("MIG", index, start)),),
        )
        for n, (profile, start, size) in enumerate(places)
    )
    return ObservedGpu(index=index, uuid=uuid("GPU", index, 0), minor=minor, instances=instances, problem=problem)


def uuid(kind: str, index: int, start: int) -> str:
    return f"{kind}-0000000{index}-0000-0000-0000-00000000000{start}"


CUT = (("3g.40gb", 0, 4), ("1g.10gb+me", 4, 1), ("1g.10gb", 5, 1))


@pytest.mark.parametrize(
    ("name", "gpus", "found"),
    [
        ("gpu-0", [gpu(0, 0), gpu(1, 1)], {uuid("GPU", 0, 0)}),
        ("gpu-0", [gpu(0, 1), gpu(1, 0)], {uuid("GPU", 0, 0), uuid("GPU", 1, 0)}),
        ("gpu-1", [gpu(0, None), gpu(1, None)], {uuid("GPU", 0, 0), uuid("GPU", 1, 0)}),
        ("gpu-3", [gpu(0, 0), gpu(1, 1)], set()),
        ("gpu-0-mig-3g40gb-9-0", [gpu(0, 0, *CUT), gpu(1, 1, *CUT)], {uuid("MIG", 0, 0)}),
        ("gpu-0-mig-3g40gb-9-0", [gpu(0, 1, *CUT), gpu(1, 0, *CUT)], {uuid("MIG", 0, 0), uuid("MIG", 1, 0)}),
        ("gpu-0-mig-1g10gb-me-20-4", [gpu(0, 0, *CUT)], {uuid("MIG", 0, 4)}),
        ("gpu-0-mig-1g10gb-19-5", [gpu(0, 0, *CUT)], {uuid("MIG", 0, 5)}),
        ("gpu-0-mig-1g10gb-19-4", [gpu(0, 0, *CUT)], set()),
        ("gpu-0-mig-19-5-1", [gpu(0, 0, *CUT)], {uuid("MIG", 0, 5)}),
        ("gpu-0-mig-3g40gb-9-0", [gpu(0, 0, problem="lost")], {uuid("GPU", 0, 0)}),
        ("gpu-0", [], set()),
    ],
)
def test_where_a_device_is(name: str, gpus: list[ObservedGpu], found: set[str]) -> None:
    device_id = f"gpu.nvidia.com/{name}"
    held = located(Usage(held={device_id: "d/p"}, doubtful={device_id: "why"}), gpus)
    (holds,), (doubted,) = held.held, held.doubtful
    assert (set(holds.split(" ")), set(doubted.split(" "))) == ({device_id, *found},) * 2
    assert bool(held.strange) is not bool(found)


# Whether the driver runs.


def test_the_drivers_sockets_count_while_they_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an address has room for 107 bytes
    assert driver_sockets(tmp_path / "absent", "gpu.nvidia.com") == ()
    names = [
        "plugins_registry/gpu.nvidia.com-reg.sock",
        "plugins_registry/gpu.nvidia.com-0b4f-reg.sock",
        "plugins/gpu.nvidia.com/dra.sock",
        "plugins/gpu.nvidia.com/dra-0b4f.sock",
    ]
    others = [
        "plugins_registry/compute-domain.nvidia.com-reg.sock",
        "plugins_registry/gpu.nvidia.company-reg.sock",
        "plugins/compute-domain.nvidia.com/dra.sock",
    ]
    servers = []
    for name in [*names, *others]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(name)
    assert driver_sockets(tmp_path, "gpu.nvidia.com") == ()
    for name in [*names, *others]:
        (tmp_path / name).unlink()
        server = socket.socket(socket.AF_UNIX)
        server.bind(name)
        server.listen(1)
        servers.append(server)
    try:
        assert set(driver_sockets(tmp_path, "gpu.nvidia.com")) == set(names)
    finally:
        for server in servers:
            server.close()
