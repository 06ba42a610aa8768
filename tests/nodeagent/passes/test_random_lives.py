"""Random lives of a node: what runs is never touched and never given to a second pod, and in the end all is as planned.

Plans change and drain partitions, pods come, end, vanish and return under their names before the watch brings it,
outlive their deletion for any time or a phase that says that they have ended, pods of another device plugin hold
devices under its ids, an administrator cuts a GPU right before the agent does, the kubelet loses its checkpoint, files
of the state directory are wiped or put back from an earlier copy, or all of it is lost together with the checkpoint,
pods run that the API shows as not started, agent and plugin are killed. The world fails by itself where something in
use is destroyed, or two containers have one device; here are the invariants that hold after every step, and where it
all ends.
`python -m tests.nodeagent.passes.test_random_lives` prints how often each of it was tried.
"""

import shutil
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from nodeagent.handover.config import DeviceKind
from nodeagent.hardware.driver import GpuInstance
from partitioning.packing import Packed, pack
from sandbox.driver import processes
from tests.builders.models import H100
from tests.drawn import examples, with_examples
from tests.nodeagent.conftest import cut, plain
from tests.nodeagent.items import Raw, mig, mps, whole
from tests.nodeagent.watched import Killed
from tests.nodeagent.world import World

pytestmark = pytest.mark.slow

PROFILES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
RESOURCES = (*(f"nvidia.com/mig-{profile}" for profile in PROFILES[:4]), "nvidia.com/gpu-10gb", "nvidia.com/gpu")

PID_BY_HAND = 77
SECONDS_TO_WITHDRAW = 3.0
WAIT = [("pass", 4)] * 3
FORMS = ("{}::0", "{}::10::2", "{}-_-3", "nvidia1/gi2")
"""Ids of other plugins for a device; the last one does not say which it is."""
LIVES_SECONDS = (5.0, 50.0, 5000.0)
"""For how long a process outlives its pod."""
FILES = ("everything", "memory", "ledger", "seen_free", "config")
CLAIMS = (("List",), ("record",), ("List", "driver's record"))
"""Where it shows that a pod has a device by a claim."""

exact = st.dictionaries(st.sampled_from(PROFILES), st.integers(1, 3), max_size=3)
slices = st.lists(st.sampled_from((5, 10, 20, 40)), max_size=4).filter(lambda sizes: sum(sizes) <= 80)
steps = st.one_of(
    st.tuples(st.just("mig"), exact, st.booleans()),
    st.tuples(st.just("mps"), slices),
    st.tuples(st.just("whole")),
    st.tuples(st.just("leave")),
    st.tuples(st.just("drain"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("pod"), st.sampled_from(RESOURCES)),
    st.tuples(st.just("unreported pod"), st.sampled_from(RESOURCES)),
    st.tuples(st.just("finish"), st.integers(0, 5)),
    st.tuples(st.just("force delete"), st.integers(0, 5), st.sampled_from(LIVES_SECONDS)),
    st.tuples(st.just("ended at the API"), st.integers(0, 5), st.sampled_from(LIVES_SECONDS)),
    st.tuples(st.just("wipe"), st.sampled_from(FILES), st.booleans()),
    st.tuples(st.just("wipe with a holder"), st.sampled_from(FILES), st.integers(0, 5)),
    st.tuples(st.just("put back"), st.sampled_from(FILES[1:4]), st.integers(1, 10)),
    st.tuples(st.just("recreate"), st.integers(0, 5), st.integers(0, 3)),
    st.tuples(st.just("other plugin's pod"), st.integers(0, 5), st.sampled_from(FORMS)),
    st.tuples(st.just("claim"), st.integers(0, 5), st.sampled_from(CLAIMS)),
    st.tuples(st.just("recut by hand")),
    st.tuples(st.just("lost checkpoint")),
    st.tuples(st.just("lost all")),
    st.tuples(st.just("kill after"), st.integers(1, 8)),
    st.tuples(st.just("pass"), st.integers(1, 4)),
)

lives = st.lists(steps, min_size=3, max_size=25)
Step: TypeAlias = tuple[object, ...]


class Life:
    def __init__(self, path: Path) -> None:
        self.world = World(path, [cut(("3g.40gb", 4), ("1g.10gb", 0)), plain()])
        self.items: dict[int, Raw] = {}
        self.drained: frozenset[str] = frozenset()
        """Ids that no new pod gets, as the plan says since then."""
        self.drained_at = 0.0
        self.alive: list[tuple[str, str]] = []
        self.orphans: list[tuple[tuple[str, str], float]] = []
        self.others: dict[tuple[str, str], float] = {}
        """Pods of the other plugin, and since when."""
        self.watch_late_passes = 0
        self.worked_on: set[str] = set()
        """MIG devices that an administrator made and on which a process of theirs runs."""
        self.copies: list[dict[Path, bytes]] = []
        """Files of the state directory after each step."""
        self.lost = ""
        """Kubelet or agent have lost records, or all have at once: what each loses at another time, nothing knows."""
        self.claimed = False
        self.tried: Counter[str] = Counter()

    def live(self, step: Step) -> None:
        """One step; afterwards the world goes on for a pass."""
        match step:
            case ("mig", dict() as requested, bool() as counted):
                packed = pack(
                    H100, pinned=self.world.gpu().layout.without(self.world.gpu().layout), requested=requested
                )
                if isinstance(packed, Packed):
                    by_count = [f"{profile}*{count}" for profile, count in requested.items()]
                    placed = [(place.profile, place.start) for place in packed.layout]
                    self.items[0] = mig(0, *(by_count if counted else placed))
            case ("mps", list() as sizes):
                self.items[1] = mps(1, *sizes)
            case ("whole",):
                self.items[1] = whole(1)
            case ("leave",):
                self.items.clear()
            case ("drain", int() as number, bool() as all_of_them):
                self._drain(number, all_of_them=all_of_them)
            case ("kill after", int() as number):
                self.world.effect.kill_after = len(self.world.effect.done) + number
            case ("recut by hand",):
                self.world.before_destroy = self._recut
            case ("lost checkpoint" | "lost all" | "wipe" | "wipe with a holder" | "put back", *_):
                self._lose(step)
            case _:
                self._live_as_pod(step)
        if step[0] in ("mig", "mps", "whole", "leave"):
            self.drained = frozenset()
            self.world.apply(*self.items.values())
        for _ in range(step[1] if step[0] == "pass" and isinstance(step[1], int) else 1):
            self.go_on()
        self.tried[str(step[0])] += 1
        self.copies.append({path: path.read_bytes() for path in self._files().values() if path.exists()})

    def _drain(self, number: int, *, all_of_them: bool) -> None:
        """For a pod that has waited long: as the controller, which plans what people do not pin."""
        ids = sorted(device.id for device in self.world.plugin.config.devices)
        self.drained = frozenset(ids if all_of_them else ids[number : number + 1])
        self.drained_at = self.world.clock.now
        drain = {"pod": "team/large", "uid": "uid-large", "partitions": sorted(self.drained)}
        self.world.apply(planned=[{**item, "drain": drain} for item in self.items.values()])

    def _lose(self, step: Step) -> None:
        match step:
            case ("lost checkpoint",) if self.lost not in ("records", "all"):
                self.lost = "checkpoint"
                self.world.kubelet.lose_checkpoint()
            case ("lost all",) if not self.claimed:  # whose records are the driver's
                self._wipe_all()
                self.lost = "all"
                self.world.plugin.restart()
                self.world.kubelet.lose_checkpoint()
                self.world.restart()
            case ("wipe", str() as what, bool() as restarted):
                self._wipe(what, restarted=restarted)
            case ("wipe with a holder", str() as what, int() as number):
                if self.alive:
                    self._wipe(what, restarted=True, key=self.alive[number % len(self.alive)])
            case ("put back", str() as what, int() as ago):
                self._put_back(what, ago)

    def _files(self) -> dict[str, Path]:
        state = self.world.state
        paths = (state.holdings, state.plugin.ledger, state.plugin.seen_free, state.plugin.config)
        return dict(zip(FILES[1:], paths, strict=True))

    def _wipe(self, what: str, *, restarted: bool, key: tuple[str, str] | None = None) -> None:
        """`key` is a pod that is deleted by force at the same time."""
        if self.lost == "checkpoint" and what not in ("seen_free", "config"):
            return
        if what == "everything":
            self._wipe_all()
        else:
            self._files()[what].unlink(missing_ok=True)
        if what not in ("seen_free", "config"):
            self.lost = self.lost or "records"
        if key is not None:
            self.alive.remove(key)
            self._delete(key, LIVES_SECONDS[1])
        if restarted:
            self._restart()

    def _wipe_all(self) -> None:
        shutil.rmtree(self.world.state.root)
        self.world.state.plugin.directory.mkdir(parents=True)

    def _put_back(self, what: str, ago: int) -> None:
        path = self._files()[what]
        content = self.copies[-ago].get(path) if len(self.copies) >= ago else None
        if content is not None and (self.lost not in ("checkpoint", "all") or what == "seen_free"):
            self.lost = self.lost or ("records" if what != "seen_free" else "")
            path.write_bytes(content)
            self._restart()

    def _restart(self) -> None:
        self.world.plugin.restart()
        self.world.restart()

    def _delete(self, key: tuple[str, str], lives_seconds: float) -> None:
        self.world.force_delete(key, seen_by_driver=False)
        self._outlives(key, lives_seconds)

    def _outlives(self, key: tuple[str, str], lives_seconds: float) -> None:
        self.orphans.append((key, self.world.clock.now + lives_seconds))

    def _live_as_pod(self, step: Step) -> None:
        match step:
            case ("pod" | "unreported pod", str() as resource):
                self._bind(resource, reported=step[0] == "pod")
            case ("finish", int() as number) if self.alive:
                self.world.finish(self.alive.pop(number % len(self.alive)))
            case ("force delete", int() as number, float() as seconds) if self.alive:
                self._delete(self.alive.pop(number % len(self.alive)), seconds)
            case ("ended at the API", int() as number, float() as seconds) if self.alive:
                self._end_at_api(self.alive.pop(number % len(self.alive)), seconds)
            case ("recreate", int() as number, int() as late_passes) if self.alive:
                self._recreate(self.alive.pop(number % len(self.alive)), late_passes)
            case ("other plugin's pod", int() as number, str() as form):
                self._bind_other(number, form)
            case ("claim", int() as number, tuple() as shown):
                self._claim(number, *shown)
            case _:
                pass

    def _bind(self, resource: str, *, reported: bool) -> None:
        """A kubelet that cannot write to the API leaves a pod there as the scheduler bound it."""
        taken = self.world.kubelet.given()
        offered = sorted(name for name, ids in self.world.kubelet.devices.items() if set(ids) - taken)
        key = self.world.pod(resource if resource in offered else next(iter(offered), resource))
        if self.world.pods[key]["status"]["phase"] != "Failed":
            self.alive.append(key)
            if not reported and key in self.world.running:
                self.world.pods[key]["status"] = {"phase": "Pending"}

    def _recreate(self, key: tuple[str, str], late_passes: int) -> None:
        if key not in self.world.running or not self.world.kubelet.held[key]:
            # Nothing says which device it has; or it waits.
            self._delete(key, LIVES_SECONDS[1])
            return
        first = self.world.recreate(key)
        self._outlives(first, LIVES_SECONDS[1])
        self.watch_late_passes = late_passes
        if key in self.world.kubelet.known:
            self.alive.append(key)

    def _end_at_api(self, key: tuple[str, str], lives_seconds: float) -> None:
        """By a client that writes its phase, which the kubelet believes."""
        self.world.pods[key]["status"] = {"phase": "Failed", "reason": "NodeLost", "startTime": "t"}
        self.world.forget(key)
        self._outlives(key, lives_seconds)

    def _idle(self) -> dict[str, str]:
        """MIG devices, and the plain GPU, on which nothing runs yet; with the names that the DRA driver gives them."""
        world, plain_gpu = self.world, self.world.gpu(1).uuid
        running = {device_id for ids in world.running.values() for device_id in ids} | world.by_hand
        names = {
            instance.uuid: f"gpu-0-mig-{instance.placed.profile.replace('.', '')}-9-{instance.placed.start}"
            for instance in world.gpu().instances
            if instance.uuid
        }
        names[plain_gpu] = "gpu-1"
        return {uuid: name for uuid, name in names.items() if not any(i.startswith(uuid) for i in running)}

    def _bind_other(self, number: int, form: str) -> None:
        if idle := list(self._idle()):
            device = idle[number % len(idle)]
            key = self.world.pod_of_other_plugin("nvidia.com/gpu", form.format(device), device)
            self.others[key] = self.world.clock.now

    def _claim(self, number: int, *shown: str) -> None:
        if idle := list(self._idle().items()):
            device, name = idle[number % len(idle)]
            self.claimed = True
            self.others[self.world.pod_of_claim(name, device, *shown)] = self.world.clock.now

    def _recut(self, gpu_uuid: str, instance: GpuInstance) -> None:
        if self.world.recut_by_hand(gpu_uuid, instance):
            self.world.before_destroy = lambda _uuid, _instance: None

    def go_on(self) -> None:
        """One pass; containers of vanished pods end in their time."""
        self.world.pods_late, self.watch_late_passes = self.watch_late_passes > 0, max(self.watch_late_passes - 1, 0)
        for key, ends in list(self.orphans):
            if self.world.clock.now >= ends:
                self.world.end_container(key)
                self.orphans.remove((key, ends))
        try:
            self.world.run()
        except Killed:
            self.world.restart()
        self._work_by_hand()
        self.check()

    def _work_by_hand(self) -> None:
        """An administrator's new instance gets its process at once."""
        for uuid in sorted(self.world.by_hand - self.worked_on):
            processes.attach(self.world.machine, uuid, PID_BY_HAND, 1)
            self.worked_on.add(uuid)

    def stop(self) -> None:
        """Every pod and container ends."""
        self.world.effect.kill_after = -1
        self.world.pods_late = False
        self.world.before_destroy = lambda _uuid, _instance: None
        for key in [*self.alive, *self.others]:
            self.world.finish(key)
        for key, _ in self.orphans:
            self.world.end_container(key)
        processes.detach(self.world.machine, PID_BY_HAND)
        self.world.by_hand.clear()

    def check(self) -> None:
        """What runs exists and is still known to the plugin; nothing is promised twice."""
        world = self.world
        config = world.plugin.config
        present = {device.id for device in config.devices}
        running = {device_id for key, ids in world.running.items() if key not in self.others for device_id in ids}
        # Slices that no record names are known again when their pods have ended.
        assert running <= present or self.lost == "all"
        self._check_others()
        if world.clock.now - self.drained_at >= SECONDS_TO_WITHDRAW and self.items:
            assert not self.drained & {i for ids in world.plugin.advertised().values() for i in ids}, "drained"
        given = [device_id for key in self.alive for device_id in world.running.get(key, ())]
        assert len(given) == len(set(given)), f"given twice: {sorted(given)}"
        plain_gpu = world.gpu(1)
        kinds = {device.kind for device in config.devices if device.gpu == plain_gpu.uuid}
        assert (
            not {DeviceKind.WHOLE, DeviceKind.MPS}
            <= {device.kind for device in config.advertised() if device.gpu == plain_gpu.uuid}
            or kinds == set()
        )
        assert plain_gpu.model is not None
        sliced = sum(device.memory_mib for device in config.devices if device.kind is DeviceKind.MPS)
        assert sliced <= plain_gpu.model.memory_mib

    def _check_others(self) -> None:
        """What another plugin's pod holds is not advertised, once the agent had a few passes to withdraw it."""
        world = self.world
        held = world.kubelet.given()
        for key, since in self.others.items():
            if world.clock.now - since >= SECONDS_TO_WITHDRAW:
                (device_id,) = world.running[key]
                twice = {d.id for d in world.plugin.config.healthy() if device_id in (d.id, d.gpu)}
                assert twice <= held, f"{key} holds {device_id}, and {twice} can be given to another pod"


THREES = {"3g.40gb": 2}
TRIED: Counter[str] = Counter()
"""Steps of all lives."""


KNOWN: list[list[Step]] = [
    [("mig", THREES, False), *WAIT, ("other plugin's pod", 0, "{}::0"), ("mig", {"7g.80gb": 1}, False), *WAIT],
    [("mig", THREES, False), *WAIT, ("other plugin's pod", 0, FORMS[3]), ("mig", {"7g.80gb": 1}, False), *WAIT],
    [("mig", THREES, False), *WAIT, ("claim", 0, CLAIMS[0]), ("mig", {"7g.80gb": 1}, False), *WAIT],
    [("claim", 5, CLAIMS[1]), ("mps", [10]), *WAIT],
    [("other plugin's pod", 5, "{}::0"), ("mps", [10]), *WAIT],
    [("other plugin's pod", 5, "{}::0"), ("pass", 4), ("whole",), *WAIT],
    [("mig", THREES, False), *WAIT, ("pod", RESOURCES[3]), ("recreate", 0, 2), ("mig", {"7g.80gb": 1}, False), *WAIT],
    [("mig", THREES, False), *WAIT, ("pod", RESOURCES[3]), ("lost checkpoint",), ("pod", RESOURCES[3]), ("finish", 0)],
    [("mig", THREES, False), *WAIT, ("pod", RESOURCES[3]), ("drain", 0, True), *WAIT, ("pod", RESOURCES[3])],
    [("mps", [10, 10]), *WAIT, ("pod", RESOURCES[4]), ("drain", 0, True), *WAIT, ("finish", 0), ("whole",), *WAIT],
    [("mps", [10]), *WAIT, ("pod", RESOURCES[4]), *WAIT, ("lost checkpoint",), *WAIT, ("pod", RESOURCES[4])],
    [("mig", THREES, False), *WAIT, ("recut by hand",), ("mig", {"1g.10gb": 1}, False), *WAIT],
    [("mig", THREES, False), *WAIT, ("pod", "any"), ("pass", 4), ("wipe with a holder", "everything", 0), *WAIT],
    [("pod", "any"), ("pass", 4), ("wipe with a holder", "memory", 0), ("mig", {"7g.80gb": 1}, False), *WAIT],
    [("mps", [10]), *WAIT, ("pod", RESOURCES[4]), ("wipe with a holder", "config", 0), ("whole",), *WAIT],
    [("mig", THREES, False), *WAIT, ("pod", "any"), ("pass", 4), ("lost all",), ("pod", "any"), *WAIT],
    [("mps", [10]), *WAIT, ("pod", RESOURCES[4]), ("pass", 4), ("lost all",), ("whole",), *WAIT, ("pod", "any")],
    [("mps", [10]), *WAIT, ("unreported pod", RESOURCES[4]), ("lost all",), ("whole",), *WAIT, ("pod", "any")],
    [("mig", THREES, False), *WAIT, ("unreported pod", RESOURCES[3]), ("lost all",), ("pod", "any"), *WAIT],
    [("pod", "any"), *WAIT, ("ended at the API", 0, 5000.0), ("mig", {"7g.80gb": 1}, False), *WAIT, ("pod", "any")],
    [("pod", "any"), *WAIT, ("force delete", 0, 5000.0), ("put back", "memory", 2), *WAIT, ("pod", "any"), *WAIT],
    [("pod", "any"), *WAIT, ("force delete", 0, 50.0), ("put back", "ledger", 5), *WAIT, ("pod", "any"), *WAIT],
]
"""Lives that were once harmed, or nearly."""


@with_examples(KNOWN)
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
@given(lives)
def test_what_runs_is_never_touched_and_finally_all_is_as_planned(lived: list[Step]) -> None:
    live(lived)


def live(lived: list[Step]) -> None:
    with TemporaryDirectory() as path:
        life = Life(Path(path))
        try:
            life.world.settle(3)
            for step in lived:
                life.live(step)
            life.stop()
            life.world.clock.now += 120
            life.world.settle(5)
            life.world.clock.now += 120
            life.world.settle(25)
            end(life.world, life.items)
        finally:
            TRIED.update(life.tried)
            life.world.undo()


def end(world: World, items: dict[int, Raw]) -> None:
    """Everything idle: each planned GPU matches its item."""
    if world.plan is None:
        return
    for index, item in items.items():
        assert world.found(index) == ("Ready", "Confirmed"), world.gpu_status(index)
        if "mig" in item:
            requested: dict[str, int] = {}
            for entry in item["mig"]["instances"]:
                requested[entry["profile"]] = requested.get(entry["profile"], 0) + entry.get("count", 1)
            assert world.gpu(index).layout.counts() == dict(sorted(requested.items()))
    assert not world.tainted()
    assert list(world.state.journal.glob("*")) == []


if __name__ == "__main__":
    number = int(sys.argv[1]) if sys.argv[1:] else 400
    drawn = settings(max_examples=number, deadline=None, phases=[Phase.generate], database=None)
    given(lives)(settings(drawn, suppress_health_check=list(HealthCheck))(live))()
    print(f"{number} lives:", ", ".join(f"{count} × {name}" for name, count in sorted(TRIED.items())))
