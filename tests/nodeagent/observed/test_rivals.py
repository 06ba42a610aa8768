"""Another device plugin on the node: ours advertises and changes nothing, and the plan reports why."""

import socket
from pathlib import Path

import pytest

from nodeagent.handover.rival_sockets import rival_sockets
from nodeagent.observed.pods import parse_pod
from nodeagent.observed.rivals import rival
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import Raw, mig, mps, operator_pod, started
from tests.nodeagent.world import World

pytestmark = pytest.mark.slow

OPERATOR = {"app": "nvidia-device-plugin-daemonset"}
PLUGINS = "/var/lib/kubelet/device-plugins"
DRA = {"dra-driver-nvidia-gpu-component": "kubelet-plugin"}


def plugin_pod(labels: dict[str, str], path: str = PLUGINS, phase: str = "Running") -> Raw:
    status = started(phase)
    if phase != "Running":
        status["containerStatuses"] = [{"name": "main", "state": {"terminated": {}}}]
    return operator_pod("nvidia-x", labels, path, status=status)


def start_rival(world: World) -> None:
    world.pods["gpu-operator", "nvidia-x"] = plugin_pod(OPERATOR)
    world.kubelet.known.add(("gpu-operator", "nvidia-x"))


def stop_rival(world: World) -> None:
    del world.pods["gpu-operator", "nvidia-x"]
    world.kubelet.known.discard(("gpu-operator", "nvidia-x"))


def start_dra_driver(world: World) -> None:
    raw = operator_pod("dra", DRA, "/var/lib/kubelet/plugins")
    raw["spec"]["containers"] = [{"name": "compute-domains"}, {"name": "gpus"}]
    world.pods["dra-driver", "dra"] = {**raw, "metadata": {**raw["metadata"], "namespace": "dra-driver"}}
    world.kubelet.known.add(("dra-driver", "dra"))


def stop_dra_driver(world: World) -> None:
    del world.pods["dra-driver", "dra"]
    world.kubelet.known.discard(("dra-driver", "dra"))


def serve(world: World) -> None:
    world.kubelet.rivals = ("nvidia-mig-3g.40gb.sock",)


def serve_dra(world: World) -> None:
    """Whatever its chart was renamed to."""
    world.kubelet.rivals = ("plugins_registry/gpu.nvidia.com-reg.sock",)


def hang_up(world: World) -> None:
    world.kubelet.rivals = ()


@pytest.mark.parametrize(
    ("start", "stop", "named"),
    [
        pytest.param(start_rival, stop_rival, "pod gpu-operator/nvidia-x", id="pod"),
        pytest.param(serve, hang_up, "nvidia-mig-3g.40gb.sock", id="socket"),
        pytest.param(serve_dra, hang_up, "DRA driver runs on this node (its socket plugins_registry/", id="DRA socket"),
        pytest.param(start_dra_driver, stop_dra_driver, "pod dra-driver/dra", id="DRA driver"),
    ],
)
def test_a_plugin_with_the_very_same_ids_is_a_conflict_at_once(world: World, start, stop, named: str) -> None:  # type: ignore[no-untyped-def]
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    same = world.kubelet.devices[THREE]

    start(world)
    world.pass_only()

    conflict = world.condition("OwnershipConflict")
    assert (conflict["status"], conflict["reason"]) == ("True", "ForeignOwner")
    assert named in conflict["message"]
    assert world.found() == ("Failed", "ForeignOwner")
    assert world.condition("Ready")["status"] == "False"

    replace_both(world)
    for n in range(100):
        world.plugin.step()
        world.kubelet.step()
        if n % 4:
            world.kubelet.devices[THREE] = same
        world.tick()
        world.clock.now += 0.5
        world.pass_only()
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4", "what the other plugin hands out is left alone"
    assert world.plugin.config.advertised() == ()

    stop(world)
    world.clock.now += 31
    for _ in range(40):
        world.run()
    assert world.layout() == "7g.80gb at 0"
    assert world.found() == ("Ready", "Confirmed")


@pytest.mark.parametrize("known", [True, False], ids=["known by its pod", "known by its ids"])
def test_no_taint_alongside_another_plugin(make_world: MakeWorld, known: bool) -> None:
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)), plain())
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)), mps(1, 10, 10))
    world.settle()
    same = world.kubelet.devices[THREE]
    world.apply(mig(0, ("3g.40gb", 4)), mps(1, 10, 10))
    world.pass_only()
    assert world.tainted()
    if known:
        start_rival(world)

    for _ in range(80):
        world.plugin.step()
        world.kubelet.step()
        world.kubelet.devices[THREE] = same
        world.tick()
        world.clock.now += 0.5
        world.pass_only()

    assert world.found() == ("Failed", "ForeignOwner")
    assert not world.tainted()


@pytest.mark.parametrize(
    ("pod", "counts"),
    [
        pytest.param(plugin_pod(OPERATOR), True, id="GPU Operator"),
        pytest.param(plugin_pod({"name": "nvidia-device-plugin-ds"}), True, id="static manifest"),
        pytest.param(plugin_pod({"app.kubernetes.io/name": "nvidia-device-plugin"}), True, id="Helm"),
        pytest.param(plugin_pod({"k8s-app": "nvidia-gpu-device-plugin"}, f"{PLUGINS}/"), True, id="GKE"),
        pytest.param(plugin_pod(OPERATOR, "/home"), False, id="a tenant's pod with its label"),
        pytest.param(plugin_pod({"app": "rdma-device-plugin"}), False, id="another vendor's"),
    ],
)
def test_pods_that_are_nvidias_device_plugin(pod: Raw, counts: bool) -> None:
    assert parse_pod(pod).device_plugin is counts


def test_a_tenants_pod_with_the_label_of_mig_manager_stops_no_node() -> None:
    manager = plugin_pod({"app": "nvidia-mig-manager"}, "/sys")
    assert parse_pod(manager).mig_manager
    manager["spec"]["volumes"] = [{"name": "p", "emptyDir": {}}]
    assert not parse_pod(manager).mig_manager
    assert not parse_pod(plugin_pod({"app": "nvidia-mig-manager"}, "/tmp")).mig_manager


def test_a_plugin_whose_pod_ended_is_no_conflict(world: World) -> None:
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.pods["gpu-operator", "nvidia-x"] = plugin_pod(OPERATOR, phase="Failed")

    world.settle()

    assert world.condition("OwnershipConflict")["status"] == "False"


def test_only_sockets_that_are_served_count(tmp_path: Path) -> None:
    assert rival_sockets(tmp_path / "absent") == ()
    for name in ("nvidia-gpu.sock", "nvidiaGPU-1.sock", "nvidia-dead.sock", "gpuplan-gpu.sock", "kubelet.sock"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / name))
    (tmp_path / "nvidia-file.sock").write_text("")
    assert rival_sockets(tmp_path) == ()

    listening = []
    others = ("gpuplan-gpu.sock", "kubelet.sock", "nvidia.com_hostdev.sock", "rdma_shared.sock")
    for name in ("nvidia-gpu.sock", "nvidiaGPU-1.sock", *others):
        (tmp_path / name).unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(tmp_path / name))
        server.listen(1)
        listening.append(server)
    try:
        for _ in range(3):  # the queue of the first probes fills up: that is alive, too
            assert rival_sockets(tmp_path) == ("nvidia-gpu.sock", "nvidiaGPU-1.sock")
    finally:
        for server in listening:
            server.close()


@pytest.mark.parametrize(
    ("labels", "path", "container", "serves"),
    [
        (DRA, "/var/lib/kubelet/plugins", "gpus", True),
        ({"nvidia-dra-driver-gpu-component": "kubelet-plugin"}, "/data/kubelet/plugins/", "gpus", True),
        ({"dra-driver-nvidia-gpu-component": "controller"}, "/var/lib/kubelet/plugins", "gpus", False),
        (DRA, "/var/lib/kubelet/plugins", "compute-domains", False),
        (DRA, "/var/log", "gpus", False),
        ({"app": "x"}, "/var/lib/kubelet/plugins", "gpus", False),
    ],
)
def test_a_dra_driver_that_serves_gpus(labels: dict[str, str], path: str, container: str, serves: bool) -> None:
    raw = operator_pod("dra", labels, path)
    raw["spec"]["containers"] = [{"name": container}]
    assert parse_pod(raw).dra_driver is serves


def test_a_plugin_without_a_pod_may_be_a_service_of_the_host() -> None:
    assert "Bottlerocket" in rival("", ("nvidia-gpu.sock",), "")
    assert "Bottlerocket" not in rival("gpu-operator/nvidia-x", ("nvidia-gpu.sock",), "")
