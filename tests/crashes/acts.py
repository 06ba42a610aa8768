"""What happens in the stories of the crash test: plans, pods, and people, in the order in which it happens.

An act asserts nothing: where a fault strikes, it may come to nothing, and its story's end tells.
"""

from collections.abc import Callable

from crds.v1alpha1.names import CLOSED, LABEL_DRIVER, LABEL_NODE_AGENT, LABEL_PARTITIONING
from nodeagent.handover.config import write_ledger
from partitioning.nvidia_plugin import NodeConfig
from sandbox.driver import processes
from tests.crashes.crash_world import Crashing, CrashNvidiaWorld
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import Raw, mig, replicas
from tests.nodeagent.passes.by_cdi import by_cdi

Act = Callable[[Crashing], None]
SEVEN = mig(0, ("7g.80gb", 0))
MIXED = mig(0, ("4g.40gb", 0), ("1g.20gb", 4), ("1g.10gb", 6))
TRIES = 8


def pod(world: Crashing, resource: str) -> tuple[str, str]:
    """Bound again until it is admitted, as a Deployment does it."""
    for _ in range(TRIES):
        key = world.pod(resource)
        if world.pods[key]["status"]["phase"] != "Failed":
            return key
        world.run(2.0)
    return key


def planned(*items: Raw) -> Act:
    return lambda world: world.apply(*items)


def held(resource: str, *items: Raw) -> Act:
    """As planned, and a pod has one."""

    def begin(world: Crashing) -> None:
        if items:
            world.apply(*items)
        world.settle(10)
        pod(world, resource)

    return begin


def label(world: Crashing, **labels: str | None) -> None:
    names = {"partitioning": LABEL_PARTITIONING, "agent": LABEL_NODE_AGENT, "driver": LABEL_DRIVER}
    found = dict(world.node["metadata"].get("labels") or {})
    for name, value in labels.items():
        found.pop(names[name], None)
        if value is not None:
            found[names[name]] = value
    world.node = {**world.node, "metadata": {**world.node["metadata"], "labels": found}}


def pods_come_and_go(world: Crashing) -> None:
    first = pod(world, THREE)
    second = pod(world, THREE)
    world.run()
    world.finish(first)
    world.run()
    pod(world, THREE)
    world.finish(second)
    replace_both(world)


def newer_plan(world: Crashing) -> None:
    world.apply(MIXED)
    world.run()
    world.run()
    world.apply(SEVEN)


def plan_is_dropped(world: Crashing) -> None:
    world.apply(MIXED)
    world.run()
    world.plan = None
    world.settle(6)


def kubelet_forgets(world: Crashing) -> None:
    """What a pod has only the agent's memory knows; no process of it works on the device."""
    for key in list(world.running):
        processes.detach(world.machine, world.pid(key))
        world.kubelet.held[key], world.kubelet.entries = {}, ()
        world.pods[key]["spec"]["containers"][0]["resources"] = {}
    world.plugin.allocations.clear()
    write_ledger(world.state.plugin, ())
    replace_both(world)
    world.settle()
    world.wait(120)


def plan_goes_and_returns(world: Crashing) -> None:
    world.plan = None
    world.settle(6)
    world.apply(MIXED)


def node_made_again(world: Crashing) -> None:
    """Deleted, so that its plan goes, and registered again under its name."""
    world.plan = None
    metadata = {**world.node["metadata"], "uid": "another", "labels": {}}
    world.node = {**world.node, "metadata": metadata, "spec": {}}
    world.settle(4)
    world.apply(MIXED)


def paused(world: Crashing) -> None:
    world.apply(SEVEN)
    world.run()
    world.apply(SEVEN, paused=True)
    world.settle(5)
    world.apply(SEVEN)


def disabled_and_enabled(world: Crashing) -> None:
    label(world, partitioning=None)
    world.settle(8)
    label(world, partitioning="mig")
    world.apply(SEVEN)


def enabled(world: Crashing) -> None:
    label(world, partitioning="mig", agent="true")
    held(THREE, mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))(world)


def held_off(world: Crashing) -> None:
    label(world, driver=CLOSED)
    world.settle(8)
    label(world, driver=None)
    world.apply(SEVEN)


def replaced(world: Crashing) -> None:
    """An upgrade: agent and plugin are replaced while a change is under way."""
    world.apply(MIXED)
    world.run()
    world.plugin.restart()
    world.run()
    world.restart()
    world.run()


def deleted_by_force(world: Crashing) -> None:
    """Its container runs on for a minute, unknown to API, kubelet and driver."""
    key = next(iter(world.running))
    world.force_delete(key, seen_by_driver=False)
    replace_both(world)
    world.settle()
    world.wait(61)
    world.end_container(key)


def claim(world: Crashing) -> None:
    device = next(i.uuid for i in world.gpu().instances if i.uuid)
    world.foreign.add(world.pod_of_claim("gpu-0-mig-3g40gb-9-0", device, "record"))
    replace_both(world)
    world.settle()
    world.wait(61)


def other_plugins_pod(world: Crashing) -> None:
    device = next(i.uuid for i in world.gpu().instances if i.uuid)
    world.foreign.add(world.pod_of_other_plugin(THREE, f"{device}::0", device))
    replace_both(world)
    world.settle()
    world.wait(61)


def drained(world: Crashing) -> None:
    item = mig(0, ("3g.40gb", 0), ("3g.40gb", 4))
    ids = sorted(device.id for device in world.plugin.config.devices)
    drain = {"pod": "team/large", "uid": "uid-large", "partitions": ids}
    world.apply(planned=[{**item, "drain": drain}])
    world.settle()
    world.apply(planned=[SEVEN])


def checkpoint_lost(world: Crashing) -> None:
    world.kubelet.lose_checkpoint()
    world.run()
    pod(world, THREE)
    replace_both(world)


def records_wiped(world: Crashing) -> None:
    """A pod was deleted by force; then the memory is lost, with the agent."""
    key = next(iter(world.running), None)
    if key is not None:
        world.force_delete(key, seen_by_driver=False)
    world.state.holdings.unlink(missing_ok=True)
    world.restart()
    replace_both(world)
    world.settle()
    world.wait(61)


def containers_by_cdi(world: Crashing) -> None:
    by_cdi(world)
    world.effect.check = lambda _what: None  # the reboot leaves entries of instances that are gone until the agent runs
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))


def nvidia_plan(world: Crashing, config: NodeConfig) -> None:
    assert isinstance(world, CrashNvidiaWorld)
    world.plan_for(*(replicas(i, config.replicas, renameByDefault=config.renamed) for i in (0, 1)), config=config)


def nvidia_changes(world: Crashing) -> None:
    nvidia_plan(world, NodeConfig(replicas=2))
