"""What a node lives through in the crash test: about twenty short stories, each with its end.

A story begins undisturbed, then something is changed, and in the end every pod has finished. Whatever struck meanwhile,
the end is that of the undisturbed story.
"""

from dataclasses import dataclass
from pathlib import Path

from partitioning.nvidia_plugin import NodeConfig
from tests.crashes.acts import (
    MIXED,
    SEVEN,
    Act,
    checkpoint_lost,
    claim,
    containers_by_cdi,
    deleted_by_force,
    disabled_and_enabled,
    drained,
    enabled,
    held,
    held_off,
    kubelet_forgets,
    newer_plan,
    node_made_again,
    nvidia_changes,
    nvidia_plan,
    other_plugins_pod,
    paused,
    plan_goes_and_returns,
    plan_is_dropped,
    planned,
    pods_come_and_go,
    records_wiped,
    replaced,
)
from tests.crashes.crash_world import Crashing, CrashNvidiaWorld, CrashWorld, Gpus
from tests.crashes.faults import PROCESSES_ONLY, Fault
from tests.nodeagent.conftest import cut, empty, plain
from tests.nodeagent.halves import THREE
from tests.nodeagent.items import mig, mps, replicas, whole

HALVES: Gpus = [cut(("3g.40gb", 0), ("3g.40gb", 4))]
NVIDIA_SECONDS = 60
UNPLANNED = frozenset({"layouts", "offered", "amounts", "devices"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    gpus: Gpus
    begin: Act = lambda world: None
    """Undisturbed."""
    act: Act
    open_end: frozenset[str] = frozenset()
    """What of the end depends on the place, where no plan says it."""
    nvidia: bool = False
    faults: frozenset[Fault] = frozenset(Fault)

    def world(self, path: Path) -> Crashing:
        return (CrashNvidiaWorld if self.nvidia else CrashWorld)(path, self.gpus)

    def live(self, world: Crashing) -> None:
        """From its beginning to its end; places count once it has begun."""
        self.begin(world)
        if self.nvidia:
            pass_by(world)
        else:
            world.settle(8)
        world.points.begun = True
        self.act(world)
        finish(world)
        # What struck last has its time, too.
        world.points.begun = False
        for _ in range(2):
            pass_by(world) if self.nvidia else world.wait(61)


def finish(world: Crashing) -> None:
    """What is waited for comes to its end, then every pod."""
    if isinstance(world, CrashNvidiaWorld):
        pass_by(world)
        for key in [key for key in world.pods if key[0] == "default"]:
            world.finish(key)
        for _ in range(3):
            pass_by(world)
        return
    world.settle()
    world.wait(31)
    for key in list(world.pods):
        world.finish(key)
    for key in list(world.running):
        world.end_container(key)
    world.wait(61)


def pass_by(world: Crashing) -> None:
    for _ in range(NVIDIA_SECONDS // 2):
        world.run(2.0)


def end(world: Crashing) -> dict[str, object]:
    """What does not depend on who came first."""
    gpus = [world.gpu(index) for index in range(len(world.gpus_there()))]
    allocatable = world.node["status"]["allocatable"]
    return {
        "layouts": [gpu.layout.counts() for gpu in gpus],
        "offered": world.advertised(),
        "amounts": {name: count for name, count in sorted(allocatable.items()) if count != "0"},
        "devices": [str(device.kind) for device in world.plugin.config.devices],
        "states": [world.found(gpu.index) for gpu in gpus] if world.plan else [],
        "Ready": world.condition("Ready")["status"] if world.plan else "",
        "tainted": world.tainted(),
        "journal": sorted(path.name for path in world.state.journal.glob("*.json")),
        "half-made": [str(instance) for gpu in gpus for instance in gpu.instances if instance.half_made],
    }


STORIES: dict[str, Story] = {
    "from empty": Story(gpus=empty(), begin=planned(), act=planned(MIXED)),
    "from cut": Story(gpus=[cut(("3g.40gb", 4), ("1g.10gb", 0), ("2g.20gb", 2))], act=planned(MIXED)),
    "around use": Story(gpus=HALVES, begin=held(THREE), act=planned(mig(0, "1g.10gb*2", "3g.40gb"))),
    "two GPUs": Story(
        gpus=[cut(("3g.40gb", 4)), cut(("4g.40gb", 0))],
        act=planned(SEVEN, mig(1, ("1g.10gb", 0), ("1g.10gb", 1))),
    ),
    "pods come and go": Story(gpus=HALVES, begin=planned(mig(0, ("3g.40gb", 0), ("3g.40gb", 4))), act=pods_come_and_go),
    "MPS slices": Story(
        gpus=[plain()], begin=held("nvidia.com/gpu-20gb", mps(0, 20, 20, 10)), act=planned(mps(0, 20, 40, 10))
    ),
    "whole to MPS": Story(gpus=[plain()], begin=held("nvidia.com/gpu", whole(0)), act=planned(mps(0, 10, 20))),
    "MPS to whole": Story(gpus=[plain()], begin=held("nvidia.com/gpu-10gb", mps(0, 10, 20)), act=planned(whole(0))),
    "MIG and MPS": Story(
        gpus=[*HALVES, plain()],
        begin=held("nvidia.com/gpu", mig(0, "3g.40gb*2"), whole(1)),
        act=planned(SEVEN, mps(1, 40, 40)),
    ),
    "replicas": Story(gpus=[plain()], begin=held("nvidia.com/gpu.shared", replicas(0, 4)), act=planned(replicas(0, 2))),
    "newer plan": Story(gpus=empty(), begin=planned(), act=newer_plan),
    "plan goes and returns": Story(gpus=HALVES, begin=held(THREE, SEVEN), act=plan_goes_and_returns),
    "nothing planned": Story(gpus=HALVES, begin=planned(SEVEN), act=planned(), open_end=UNPLANNED),
    "plan is dropped": Story(gpus=empty(), begin=planned(), act=plan_is_dropped, open_end=UNPLANNED),
    "kubelet forgets": Story(gpus=HALVES, begin=held(THREE), act=kubelet_forgets),
    "node made again": Story(gpus=HALVES, begin=planned(SEVEN), act=node_made_again),
    "paused": Story(gpus=HALVES, act=paused),
    "disabled and enabled": Story(gpus=HALVES, begin=enabled, act=disabled_and_enabled),
    "driver closed": Story(gpus=HALVES, act=held_off),
    "upgrade": Story(gpus=HALVES, act=replaced),
    "deleted by force": Story(gpus=HALVES, begin=held(THREE), act=deleted_by_force),
    "claim": Story(gpus=HALVES, act=claim),
    "other plugin's pod": Story(gpus=HALVES, act=other_plugins_pod),
    "drain": Story(gpus=HALVES, begin=held(THREE, mig(0, "3g.40gb*2")), act=drained),
    "checkpoint lost": Story(gpus=HALVES, begin=held(THREE, mig(0, "3g.40gb*2")), act=checkpoint_lost),
    "memory lost": Story(gpus=HALVES, begin=held(THREE), act=records_wiped),
    "CDI": Story(gpus=[*HALVES], begin=containers_by_cdi, act=planned(MIXED)),
    "NVIDIA's plugin": Story(
        gpus=[plain(), plain()],
        begin=lambda world: nvidia_plan(world, NodeConfig(replicas=4, renamed=True)),
        act=nvidia_changes,
        nvidia=True,
        faults=PROCESSES_ONLY,
    ),
}
