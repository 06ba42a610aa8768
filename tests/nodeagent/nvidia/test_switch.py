"""NVIDIA's device plugin as the backend: its config changes while nothing is held, and is confirmed, never believed."""

import shutil

import pytest

from partitioning.nvidia_plugin import NodeConfig
from tests import incidents
from tests.nodeagent.items import mps, replicas, whole
from tests.nodeagent.nvidia.nvidia_world import SHARED, WHOLE, NvidiaWorld

FOUR = NodeConfig(replicas=4, renamed=True)
TWO = NodeConfig(replicas=2, renamed=True)
READY = ("Ready", "Confirmed")
WAITS = ("WaitingForRelease", "WaitingForRelease")


def shared(world: NvidiaWorld, config: NodeConfig = FOUR) -> None:
    """Both GPUs as so many replicas."""
    world.plan_for(*(replicas(index, config.replicas) for index in (0, 1)), config=config)


def holder(world: NvidiaWorld, device: str, resource: str = WHOLE) -> tuple[str, str]:
    return world.pod_of_other_plugin(resource, device, device)


def test_whole_gpus_become_replicas(world: NvidiaWorld) -> None:
    shared(world)
    world.until(READY)

    assert world.label() == FOUR.key
    assert world.advertised() == {SHARED: 8}
    assert world.partitions() == ["gpu.shared Free"] * 4
    assert not world.tainted()
    plugin = world.status()["devicePlugin"]
    assert plugin == {"backend": "nvidia", "config": FOUR.key}
    assert world.condition("OwnershipConflict")["status"] == "False"
    assert world.plugin.config.devices == ()  # our own device plugin advertises nothing


def test_nothing_changes_while_a_container_holds_a_device(world: NvidiaWorld) -> None:
    pod = holder(world, world.gpu(1).uuid)
    shared(world)
    world.until(WAITS, gpu=1)
    world.settle()

    assert world.moves == []
    assert not world.tainted()
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "WaitingForRelease")
    assert "GPU 1: the whole GPU is held by pod default/p1" in ready["message"]

    world.finish(pod)
    world.until(READY)
    assert world.moves == [FOUR.key]


def test_a_pod_that_is_bound_during_the_taint_is_waited_for(world: NvidiaWorld) -> None:
    shared(world)
    while not world.tainted():
        world.run()
    holder(world, world.gpu(0).uuid)
    world.until(WAITS)

    assert world.moves == []
    assert not world.tainted()


def test_unknown_counts_as_in_use(world: NvidiaWorld) -> None:
    world.kubelet.refuses = "no kubelet"
    shared(world)
    world.settle()

    assert world.moves == []
    assert world.found() == ("WaitingForRelease", "UseUnknown")


def test_replicas_to_other_replicas_signal_the_daemon_that_keeps_its_limits(world: NvidiaWorld) -> None:
    shared(world)
    world.until(READY)
    world.sighups.clear()
    shared(world, TWO)
    world.until(READY, seconds=120)

    assert world.daemon_replicas == 2
    assert world.sighups == ["mps-control-daemon"]
    assert world.advertised() == {SHARED: 4}


def test_the_daemon_is_not_reloaded_below_a_container(world: NvidiaWorld) -> None:
    shared(world)
    world.until(READY)
    world.sighups.clear()
    shared(world, TWO)
    while not world.moves[1:]:
        world.run()
    world.run()
    pod = holder(world, f"{world.gpu(0).uuid}::0", SHARED)
    world.settle(60)

    assert world.sighups == []
    assert world.found()[1] == "WaitingForRelease"

    world.finish(pod)
    world.until(READY, seconds=120)
    assert world.daemon_replicas == 2


def test_a_lost_signal_is_sent_once_more(world: NvidiaWorld) -> None:
    world.signals = False
    shared(world)
    world.until(READY, seconds=200)

    assert "nvidia-device-plugin" in world.sighups
    assert world.advertised() == {SHARED: 8}


def test_the_switched_link_alone_proves_nothing(world: NvidiaWorld) -> None:
    world.plan_for(whole(0), whole(1), config=NodeConfig())
    world.signals = False
    while not world.moves:
        world.run()
    for _ in range(20):
        world.run()

    assert world.chosen("plugin") == NodeConfig().key
    assert world.found() == ("Advertising", "Advertising")


def test_no_config_is_asked_for_before_the_pod_sees_its_key(world: NvidiaWorld) -> None:
    world.projects = False
    shared(world)
    world.settle(20)
    assert world.moves == []
    assert not world.tainted()

    world.until(("Failed", "AdvertiseTimeout"), seconds=200, step=2.0)
    assert "does not see the key gpuplan-mps-4-" in world.gpu_status()["message"]
    world.projects = True
    world.until(READY, seconds=120)


def test_a_key_that_is_not_projected_yet_is_not_polled_for(world: NvidiaWorld) -> None:
    """Its folder is watched; without inotify the resync finds it."""
    world.projects = False
    shared(world)
    world.settle()
    ends = [world.agent.reconcile() for _ in range(3)]
    (folder,) = ends[-1].projections
    assert {end.due_seconds for end in ends} == {10.0}
    assert folder.parts[-4:] == (world.uids["plugin"], "volumes", "kubernetes.io~configmap", "available-configs")

    world.project("plugin")
    world.pass_only()
    end = world.agent.reconcile()
    assert (end.due_seconds <= 1.0, end.projections) == (True, ())
    world.projects = True
    world.until(READY, seconds=120)


def test_a_pod_whose_folder_is_not_there_yet_is_found_by_the_resync(world: NvidiaWorld) -> None:
    shutil.rmtree(world.root / "pods" / world.uids["plugin"] / "volumes" / "kubernetes.io~configmap")
    world.projects = False
    shared(world)
    world.settle()
    end = world.agent.reconcile()
    assert (end.due_seconds, end.projections) == (10.0, ())

    world.projects = True
    world.until(READY, seconds=120)


def test_a_controller_that_is_away_does_not_close_the_node(world: NvidiaWorld) -> None:
    world.controls = False
    shared(world)
    world.until(("Failed", "AdvertiseTimeout"), seconds=200, step=2.0)

    assert not world.tainted()
    world.controls = True
    world.until(READY, seconds=400, step=2.0)


def test_a_label_of_another_client_is_left_alone(world: NvidiaWorld) -> None:
    world.node["metadata"]["labels"] = {"nvidia.com/device-plugin.config": "theirs"}
    world.config_map["theirs"] = "version: v1\n"
    shared(world)
    world.settle()

    assert world.label() == "theirs"
    conflict = world.condition("OwnershipConflict")
    assert (conflict["status"], conflict["reason"]) == ("True", "ForeignOwner")
    assert "kubectl label node gpu-node-1 nvidia.com/device-plugin.config-" in conflict["message"]
    assert world.found() == ("Failed", "ForeignOwner")


@pytest.mark.parametrize(
    ("items", "named"),
    [
        ([replicas(0, 4), replicas(1, 2)], "GPU 1: mps: it differs from that of GPU 0"),
        ([mps(0, 10), replicas(1, 2)], "GPU 0: mps.slices: "),
        ([replicas(0, 4)], "GPU 1 is neither in spec.gpus nor in spec.planned"),
        ([replicas(0, 60), replicas(1, 60)], "write 48 or less"),
    ],
)
def test_what_the_plugin_cannot_do_is_refused(world: NvidiaWorld, items: list[dict[str, object]], named: str) -> None:
    world.plan_for(*items)
    world.settle()

    assert world.found()[0] == "Failed"
    assert named in world.gpu_status()["message"]
    assert world.moves == []
    assert world.partitions() == ["gpu Free"]


def test_replicas_alongside_the_mixed_strategy_are_refused_before_the_plugin_would_end(world: NvidiaWorld) -> None:
    world.pods["nvidia", "plugin"]["spec"]["containers"][0]["env"] = [{"name": "MIG_STRATEGY", "value": "mixed"}]
    shared(world)
    world.settle()

    assert world.moves == []
    assert world.found() == ("Failed", "NotSupported")
    assert "mig.strategy" in world.gpu_status()["message"]


def test_a_node_without_nvidias_plugin_names_the_remedy(world: NvidiaWorld) -> None:
    world.end("plugin")
    shared(world)
    world.until(("Failed", "DevicePluginError"), seconds=120)

    assert "nvidia.com/gpu.deploy.device-plugin=true" in world.gpu_status()["message"]
    assert not world.tainted()


def test_a_disabled_node_is_handed_back_while_nvidias_plugin_serves_it(world: NvidiaWorld) -> None:
    world.node["metadata"]["labels"] = {"gpuplan.dev/gpu-partitioning": "mps"}
    shared(world)
    world.until(READY)
    holder(world, f"{world.gpu(0).uuid}::0", SHARED)
    del world.node["metadata"]["labels"]["gpuplan.dev/gpu-partitioning"]
    world.settle()

    assert world.condition("HandedBack")["status"] == "True"
    assert world.advertised() == {SHARED: 8}


def test_a_container_that_restarts_its_sidecar_unsettles_nothing(world: NvidiaWorld) -> None:
    """config-manager begins with the default each time it starts, and makes its link again."""
    shared(world)
    world.until(READY)
    world.sighups.clear()
    world.choose("plugin", "default")
    world.load("default")
    world.settle()

    assert world.found() == READY
    assert world.sighups == []
    assert world.moves == [FOUR.key]


def test_a_lost_gpu_stops_no_other(world: NvidiaWorld) -> None:
    shared(world)
    world.until(READY)
    world.sighups.clear()
    incidents.lose(world.machine, world.gpu(1).uuid)
    for _ in range(40):
        world.run(5.0)

    assert world.found() == READY
    assert world.found(1) == ("Failed", "Unhealthy")
    assert world.sighups == []


def test_what_feature_discovery_says_is_explained(world: NvidiaWorld) -> None:
    world.node["metadata"]["labels"] = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "mps"}
    shared(world)
    world.until(READY)
    message = world.condition("Advertised")["message"]
    assert "nvidia.com/gpu.replicas=4, nvidia.com/gpu.sharing-strategy=mps" in message


def test_a_paused_plan_changes_nothing(world: NvidiaWorld) -> None:
    world.plan_for(replicas(0, 4), replicas(1, 4), config=FOUR, paused=True)
    world.settle()

    assert world.moves == []
    assert world.found() == ("Changing", "Paused")


def test_a_plan_without_gpus_leaves_the_plugin_alone(world: NvidiaWorld) -> None:
    world.plan_for()
    world.settle()

    assert (world.moves, world.label()) == ([], "")
    assert world.found() == ("Unmanaged", "Unmanaged")
    assert world.partitions() == ["gpu Free"]
