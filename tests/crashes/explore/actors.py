"""Who acts on a node in the explorer, one act at a time, and what the node then looks like.

An agent's pass is one act, or cut: at one of its effects another actor acts, or the agent dies. Everything else around
it moves only when it is chosen: plugin, kubelet, Node writes, the clock, pods, plans. The watches of pods and of the
Node lag as a choice of their own. Records and checkpoints are lost, ids of strangers and claims appear, the machine
starts again. `state` is what all of that comes to, without names and numbers that only ever grow.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from nodeagent.handover.config import PluginConfig, read_config, read_ledger
from nodeagent.handover.seen_free import read_seen_free
from nodeagent.observed.memory import MEMORY
from tests.builders.models import H100
from tests.crashes.crash_world import CrashWorld
from tests.nodeagent.halves import THREE
from tests.nodeagent.items import mig
from tests.nodeagent.watched import Killed

PLANS = (
    mig(0, ("3g.40gb", 0), ("3g.40gb", 4)),
    mig(0, ("7g.80gb", 0)),
    mig(0, ("3g.40gb", 0), ("1g.10gb", 4)),
)
MOST_PODS, ROUNDS, SETTLED = 3, 5, 6
USUAL = ("round", "rounds", "rounds", "minute")
"""Time goes by, and all do their part: what is chosen without end is that."""


class Choice(NamedTuple):
    """Who acts, and for a cut pass at which effect, and who acts there."""

    act: str
    effect: int = 0
    there: str = ""

    def __str__(self) -> str:
        return f"{self.act} {self.effect} {self.there}".strip() if self.effect else self.act


class Node:
    """One node with one GPU in two halves, and its acts by name."""

    def __init__(self, path: Path) -> None:
        self.world = world = CrashWorld(
            path, [(H100, {"mig_enabled": True, "instances": [("3g.40gb", 0), ("3g.40gb", 4)]})]
        )
        world.points.begun = True
        world.apply(PLANS[0])
        world.settle(8)
        self.plan = 0
        self.lost = ""
        """Kubelet or agent have lost records: where both have, nothing is left that knows who holds what."""
        self.acts: dict[str, Callable[[], object]] = {
            "pass": self._pass,
            "plugin": world.plugin.step,
            "kubelet": self._kubelet,
            "node": world.tick,
            "round": world.run,
            "rounds": lambda: [world.run() for _ in range(ROUNDS)],
            "time": lambda: self._wait(3.0),
            "minute": lambda: self._wait(61.0),
            "pods are late": lambda: self._late(pods=True),
            "the Node is late": lambda: self._late(pods=False),
            "pod": lambda: world.pod(THREE) if len(world.pods) < MOST_PODS else None,
            "pod ends": lambda: self._with_pod(world.finish),
            "pod is deleted by force": lambda: self._with_pod(
                lambda key: world.force_delete(key, seen_by_driver=False)
            ),
            "pod ends at the API": lambda: self._with_pod(self._end_at_api),
            "pod is replaced": lambda: self._with_pod(self._recreate),
            "orphan ends": self._orphan_ends,
            "plan": self._next_plan,
            "plan drains": self._drain,
            "agent restarts": world.restart,
            "plugin restarts": world.plugin.restart,
            "kubelet restarts": world.kubelet_restarts,
            "checkpoint is lost": self._lose_checkpoint,
            "memory is lost": lambda: self._lose("holdings"),
            "everything is lost": lambda: self._lose("everything"),
            "foreign id": lambda: self._foreign(self._known_id),
            "odd id": lambda: self._foreign(self._odd_id),
            "claim": lambda: self._foreign(self._claim),
            "reboot": world._starts_again,
        }

    def choices(self) -> list[Choice]:
        """All that may be next."""
        there = ("plugin", "kubelet", "node", "pod", "pod is deleted by force", "plan", "kubelet restarts", "dies")
        cut = [Choice("pass", effect, who) for effect in (1, 2, 3) for who in there]
        return [*(Choice(name) for name in self.acts), *cut]

    def take(self, choice: Choice) -> None:
        """Act, and check what must hold."""
        if choice.effect:
            self._cut_pass(choice)
        else:
            self.acts[choice.act]()
        self.world.check()
        self.world.check_there()

    def _pass(self) -> None:
        self.world.pass_only()

    def _cut_pass(self, choice: Choice) -> None:
        world, begun = self.world, len(self.world.effect.done)

        def meanwhile(what: str) -> None:
            if len(world.effect.done) != begun + choice.effect:
                return
            if choice.there == "dies":
                raise Killed(what)
            own, world.points._processes = world.points._processes, []
            self.acts[choice.there]()
            world.points._processes = own

        before, world.effect.check = world.effect.check, meanwhile
        try:
            world.pass_only()
        finally:
            world.effect.check = before

    def _kubelet(self) -> None:
        self.world.kubelet.step()
        self.world.start_waiting()

    def _wait(self, seconds: float) -> None:
        self.world.clock.now += seconds

    def _late(self, *, pods: bool) -> None:
        world = self.world
        if pods:
            world.pods_late = not world.pods_late
        else:
            world.node_late = not world.node_late

    def _with_pod(self, act: Callable[[tuple[str, str]], object]) -> None:
        """The first that the kubelet has."""
        for key in sorted(self.world.kubelet.known - self.world.foreign):
            if key in self.world.pods:
                act(key)
                return

    def _end_at_api(self, key: tuple[str, str]) -> None:
        self.world.pods[key]["status"] = {"phase": "Failed", "reason": "NodeLost", "startTime": "t"}
        self.world.forget(key)

    def _recreate(self, key: tuple[str, str]) -> None:
        if key in self.world.running and self.world.kubelet.held.get(key):
            self.world.recreate(key)

    def _orphan_ends(self) -> None:
        for key in sorted(self.world.running.keys() - self.world.kubelet.known)[:1]:
            self.world.end_container(key)

    def _next_plan(self) -> None:
        self.plan = (self.plan + 1) % len(PLANS)
        self.world.apply(PLANS[self.plan])

    def _drain(self) -> None:
        ids = sorted(device.id for device in self.world.plugin.config.devices)
        drain = {"pod": "team/large", "uid": "uid-large", "partitions": ids}
        self.world.apply(planned=[{**PLANS[self.plan], "drain": drain}])

    def _lose_checkpoint(self) -> None:
        if self.lost != "records":
            self.lost = "checkpoint"
            self.world.kubelet.lose_checkpoint()

    def _lose(self, what: str) -> None:
        if self.lost == "checkpoint":
            return
        self.lost = "records"
        state = self.world.state
        if what == "everything":
            shutil.rmtree(state.root)
            state.plugin.directory.mkdir(parents=True)
        else:
            state.holdings.unlink(missing_ok=True)
        self.world.plugin.restart()
        self.world.restart()

    def _foreign(self, bind: Callable[[str, int], tuple[str, str]]) -> None:
        """A pod that has one half not by our plugin, where it is idle.

        Until it is withdrawn, some moments later, the kubelet may give it away as well: two plugins serve it then.
        """
        world = self.world
        used = {i.partition("::")[0] for ids in world.running.values() for i in ids}.union(*world.waiting.values())
        idle = [i for i in world.gpu().instances if i.uuid and i.uuid not in used | world.kubelet.given()]
        if not world.foreign and idle and idle[0].placed.profile == "3g.40gb":
            world.foreign.add(bind(idle[0].uuid or "", idle[0].placed.start))
            world.settle(SETTLED)

    def _known_id(self, device: str, _start: int) -> tuple[str, str]:
        return self.world.pod_of_other_plugin(THREE, f"{device}::0", device)

    def _odd_id(self, device: str, _start: int) -> tuple[str, str]:
        return self.world.pod_of_other_plugin("nvidia.com/gpu", "nvidia0/gi1", device)

    def _claim(self, device: str, start: int) -> tuple[str, str]:
        return self.world.pod_of_claim(f"gpu-0-mig-3g40gb-9-{start}", device, "record")

    def state(self) -> tuple[object, ...]:
        """What there is, by place in order of appearance."""
        world, names = self.world, Names()
        config = read_config(world.state.plugin)
        ledger = read_ledger(world.state.plugin)
        memory = world.state.holdings.read_bytes() if world.state.holdings.exists() else b""
        holders = MEMORY.validate_json(memory) if memory else None
        marks = read_seen_free(world.state.plugin)
        return (
            [str(instance.placed) + names(instance.uuid) for instance in world.gpu().instances],
            [_of_config(found, names) for found in (config, world.plugin.config)],
            sorted(names(e.id) for e in ledger) if isinstance(ledger, tuple) else "",
            sorted(names(i) for holding in holders.pods for i in holding.ids) if holders else None,
            sorted(names(i) for i in marks.allocations),
            {r: sorted(map(names, ids)) for r, ids in sorted(world.kubelet.devices.items())},
            sorted(sorted(map(names, ids)) for ids in world.running.values()),
            sorted(sorted(map(names, ids)) for ids in world.waiting.values()),
            sorted(str(raw["status"].get("phase")) for raw in world.pods.values()),
            sorted(sorted(names(i) for i in pod.get("main", {}).get(THREE, ())) for pod in world.kubelet.held.values()),
            [(gpu["state"], gpu.get("reason")) for gpu in world.status().get("gpus", ())],
            (self.plan, world.tainted(), world.pods_late, world.node_late, self.lost, world.plugin.admitting),
            sorted(path.name for path in world.state.journal.glob("*.json")),
        )


class Names(dict[str, str]):
    """Short names of devices in the order in which they are met."""

    def __call__(self, device_id: str | None) -> str:
        return self.setdefault(device_id or "", f"d{len(self)}") if device_id else "-"


def _of_config(config: object, names: Names) -> object:
    if not isinstance(config, PluginConfig):
        return str(type(config).__name__)
    lists = (config.withdrawn, config.unhealthy, config.drained, config.occupied)
    return sorted(names(device.id) for device in config.devices), [sorted(map(names, ids)) for ids in lists]
