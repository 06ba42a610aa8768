"""Random lives of a controller: `python -m tests.controller.chaos [LIVES] [FIRST SEED]`.

The controller as it ships (loop, state, planner, writer, nominations) on an API server, on a clock that the life moves;
the rest is played by `played_cluster`. Meanwhile watches are late, the cluster changes while a pass is being
planned, writes are refused or lose their answers, and the controller dies anywhere and starts again. Small pods come
without end before large ones, so that GPUs are drained, and some come alone, so that they are planned at once. After
every write each partition that the status names as used is in the plan; from time to time a pass without news must
change nothing; and at the end every pod runs or has run.
"""

import random
import sys
import traceback
from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Any

from controller.cache.batcher import ALONE_SECONDS
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions
from controller.planning import plan
from crds.v1alpha1 import paths
from crds.v1alpha1.plan import effective_items
from crds.v1alpha1.spec import PlanSpec
from kube import apply
from tests.apiserver import Disconnect, Refuse
from tests.clock import Clock
from tests.controller.cluster import ApiCluster
from tests.controller.late_bench import IDLE_SECONDS, TIMEOUT_SECONDS, LateBench
from tests.controller.loop_rig import LoopRig
from tests.controller.played_cluster import EPOCH, GPUS, PlayedCluster
from tests.controller.played_gpus import instances_of

STEPS = 36
CALM_STEPS, CYCLE_STEPS = 6, 18
"""Of each cycle: few pods come then, so that one that comes alone is planned at once."""
MOST_PODS, FEW_PODS = 24, 3
LAST_ROUNDS = 120
FAULTS = (Refuse(code=409, reason="Conflict"), Refuse(code=500), Disconnect(), Disconnect(after_write=True))


class Crash(BaseException):
    """The controller ends here, whatever it was about to do."""


class Life(PlayedCluster):
    """One cluster with one controller at a time; `run` once."""

    def __init__(self, cluster: ApiCluster, seed: int) -> None:
        super().__init__(cluster, random.Random(seed), Clock(0.0))
        self.seed = seed
        self.harmed: list[str] = []
        self._tried: Counter[str] = Counter()
        """Writes of this step, by path."""
        self._fault_share = 0.0
        self._snapshot = Snapshot()
        """Of the last pass, whichever controller made it."""
        cluster.server.faults.append(self._fault)
        self.start()

    def run(self) -> None:
        for number in range(STEPS):
            self.step(number)
        self.finish()

    def start(self) -> None:
        """A controller that remembers nothing."""
        self.bench = LateBench(self.cluster, self.clock, epoch=EPOCH)
        self.rig = LoopRig(self.bench)
        self.rig.answer = self._plan
        self.rig.recorder.emit = self._emit  # type: ignore[method-assign]  # where it may die after a write
        self.crash_at = ""

    def step(self, number: int) -> None:
        rng, calm = self.rng, number % CYCLE_STEPS < CALM_STEPS
        self.clock.now += 10 * rng.randint(0, 12)
        self.end_pods()
        for _ in range(rng.choice((0, 1) if calm else (1, 2, 4))):
            if len(self.pods) < (FEW_PODS if calm else MOST_PODS):
                self.come()
        for act in rng.sample([self.schedule, self.obey, self.beat], 3):
            if rng.random() < 0.8:
                act()
        self.crash_at = rng.choice(("", "", "", "", "planned", "written"))
        self._fault_share = rng.choice((0.0, 0.0, 0.2, 0.6))
        self._tried.clear()
        if rng.random() < 0.1:
            self.seen["restarts"] += 1
            self.start()
        late = {kind for kind in ("nodes", "plans", "pods") if rng.random() < 0.2}
        self.seen["late watches"] += bool(late)
        for after in (0.0, ALONE_SECONDS, IDLE_SECONDS, TIMEOUT_SECONDS):
            self.turn(after, late)
        self._fault_share = 0.0
        if rng.random() < 0.3:
            self.check_quiet()

    # what happens to the controller

    def turn(self, after: float, late: Collection[str] = ()) -> None:
        self.bench.late = late
        window = self.bench.window
        self.clock.now += after
        self.planned = 0
        early = window.early and window.due_in() != 0
        before = self.generations()
        try:
            self.rig.turn()
        except Crash:
            self.seen["crashes"] += 1
            self.start()
        if before != (now := self.generations()):
            self.seen["early writes"] += early
            self.check_unharmed({node for node in now if now[node] != before.get(node)})

    def _plan(self, snapshot: Snapshot) -> PlanningResult:
        self.planned += 1
        self._snapshot = snapshot
        result = plan(snapshot, PlannerOptions())
        self.seen["drains"] += len(result.drained)
        if self.meanwhile and self.rng.random() < 0.3:
            self.seen["changes meanwhile"] += 1
            for _ in range(3):
                self.come()
            self.schedule()
            self.obey()
        if self.crash_at == "planned":
            raise Crash
        return result

    meanwhile = True
    """The cluster changes between a decision and its write."""

    def _emit(self, *_: object, **__: object) -> None:
        if self.crash_at == "written":
            raise Crash

    def _fault(self, request: Any) -> Refuse | Disconnect | None:
        ours = request.method == "PATCH" and dict(request.query).get("fieldManager") == "gpuplan-controller"
        if not (ours and self._fault_share):
            return None
        # Writes are sent side by side: what becomes of one must not depend on which comes first.
        self._tried[request.path] += 1
        rng = random.Random(f"{self.seed} {self.clock.now} {request.path} {self._tried[request.path]}")
        if rng.random() >= self._fault_share:
            return None
        self.seen["refused writes"] += 1
        return rng.choice(FAULTS)

    # what must hold

    def generations(self) -> dict[str, int]:
        items = apply.get(self.cluster.api, paths.PLANS)["items"]
        return {raw["metadata"]["name"]: raw["metadata"]["generation"] for raw in items}

    def check_unharmed(self, nodes: set[str]) -> None:
        for node in sorted(nodes):
            raw = self.cluster.get_plan(node)
            items = effective_items(PlanSpec.read(raw["spec"]), {i: self.gpus[node, i].uuid for i in range(GPUS)})
            for gpu in (raw.get("status") or {}).get("gpus", ()):
                item = items.get(gpu["index"])
                kept = {(one["profile"], one["start"]) for one in instances_of(item.wire())} if item else None
                for part in gpu.get("partitions", ()):
                    name = part["resource"].removeprefix("nvidia.com/mig-")
                    if part["state"] == "Used" and kept is not None and (name, part["start"]) not in kept:
                        self.harmed.append(f"{self.clock.now:.0f} s: {node} loses {part}: {raw['spec']}")

    def check_quiet(self) -> None:
        """All is known and done; a pass then changes nothing, and the one after it neither."""
        self.meanwhile, self.crash_at = False, ""
        for _ in range(6):
            news = self.obey()
            self.beat()
            self.turn(IDLE_SECONDS)
            if not (news or self.bench.window.open):
                break
        before, last = self.generations(), self._snapshot
        news = self.obey()
        self.bench.window.add("once more")
        self.turn(IDLE_SECONDS)
        if self.planned and not news and self.moods(last) == self.moods(self._snapshot):
            self.seen["quiet passes"] += 1
            if self.generations() != before:
                self.harmed.append(f"{self.clock.now:.0f} s: a pass without news changes {before}")
        self.meanwhile = True

    def moods(self, found: Snapshot) -> object:
        """What changes by time alone, of the pods that wait still: it may have changed since the last pass."""
        waiting = {pod.uid for pod in self._snapshot.pending}
        due = [uids & waiting for uids in (found.aged, found.drained_for, found.resting)]
        refusals = [each.write_refused for each in found.plans]
        return due, found.bind_failures, found.unexamined, refusals

    def finish(self) -> None:
        """No more pods come, and nothing breaks."""
        self.meanwhile, self.crash_at = False, ""
        for _ in range(LAST_ROUNDS):
            if all(one.node for one in self.pods.values()):
                return
            self.clock.now += 30
            self.end_pods()
            for act in (
                self.obey,
                self.beat,
                self.schedule,
                self.obey,
                partial(self.turn, 0.0),
                partial(self.turn, 1.0),
            ):
                act()
        self.harmed.append(f"these never ran: {sorted(one.name for one in self.pods.values() if not one.node)}")


def main(lives: int = 100, first: int = 0) -> int:
    total: Counter[str] = Counter()
    wrong = 0
    for seed in range(first, first + lives):
        cluster = ApiCluster()
        life = Life(cluster, seed)
        try:
            life.run()
        except Exception:  # noqa: BLE001  # printed with its seed, and the next life has its turn
            life.harmed.append(traceback.format_exc())
        finally:
            cluster.server.stop()
        total += life.seen
        wrong += bool(life.harmed)
        for fault in life.harmed:
            print(f"seed {seed}: {fault}")
    print(f"lives {lives}, with a fault {wrong}: {dict(sorted(total.items()))}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*[int(word) for word in sys.argv[1:3]]))
