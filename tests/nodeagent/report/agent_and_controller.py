"""Agent and controller on one API server, in any order of events.

The controller's `AgentLiveness` and the agent's `StatusWriter` and `Heartbeat` are the product's; the test plays
threads and watches, and moves the clock.
"""

import contextlib

from controller.actions.agent_liveness import AgentLiveness
from controller.api.plans import read_plan
from crds.v1alpha1 import names
from kube.budget import RequestBudget
from kube.errors import ApiError
from kube.latest import LatestVersion
from kube.leases import Heartbeat
from nodeagent.desired.plan import ObservedPlan, parse_plan
from nodeagent.report.publish import StatusFailures, StatusWriter
from tests.builders.objects import condition, node, status
from tests.controller.cluster import Bench


class Beats:
    """The heartbeat without its thread: what is requested goes out when the test decides."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self.heartbeat, self.requested = heartbeat, False

    @property
    def taken(self) -> int:
        return self.heartbeat.taken

    @taken.setter
    def taken(self, value: int) -> None:
        raise AssertionError(value)

    def beat_now(self) -> None:
        self.requested = True

    def send(self) -> None:
        self.requested = False
        self.heartbeat.beat()


class Silent:
    """A heartbeat that nothing needs."""

    taken = 0

    def beat_now(self) -> None:
        raise AssertionError("not needed")


class PlanRig:
    """One plan, its agent and the controller."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.cluster = bench, bench.cluster
        self.cluster.node(node("n1"))
        self.cluster.plan("n1")
        self.controller = AgentLiveness(bench.environment, agent_silent_seconds=60, taint_removal_seconds=180)
        self.latest, self.failures = LatestVersion[ObservedPlan](), StatusFailures()
        self.beats = Beats(
            Heartbeat(
                self.cluster.api,
                namespace=names.NAMESPACE,
                name=names.agent_lease("n1"),
                identity="n1",
                manager=names.AGENT_MANAGER,
                annotations=self.failures.annotations,
            )
        )
        self.writer = StatusWriter(
            self.cluster.api,
            "n1",
            self.latest,
            RequestBudget(),
            beats=self.beats,
            failures=self.failures,
            clock=bench.clock,
            interval_seconds=0.0,
        )
        self.ready: list[str] = []
        """Every status of Ready that a watch would have brought, without repetitions."""

    def controller_turn(self, *, leases: bool = True) -> None:
        """Its watches and its lifecycle; without `leases` the watch of the Leases lags behind that of the plans."""
        if leases:
            self.bench.load()
        self.bench.state.observe_plan("n1", read_plan(self.cluster.get_plan()))
        self.bench.state.tick()
        self.controller.run()
        self.record_ready()

    def agent_turn(self, *, watch: bool = True) -> None:
        """A pass; without `watch` on what the agent knew before."""
        raw = self.cluster.get_plan()
        if watch:
            self.latest.on_event(None, None, parse_plan(raw))
        plan = self.latest.get()
        assert plan is not None
        seen = plan.generation
        own = [condition(kind, "True", "Confirmed", seen) for kind in sorted(names.Condition) if kind != "AgentAlive"]
        with contextlib.suppress(ApiError):
            self.writer.write(plan, {**status(observed=seen), "conditions": own})
        self.record_ready()

    def record_ready(self) -> None:
        found = self.cluster.conditions().get("Ready", {}).get("status", "")
        if not self.ready or self.ready[-1] != found:
            self.ready.append(found)

    def reported(self, kind: str) -> tuple[str, str]:
        found = self.cluster.conditions()[kind]
        return found["status"], found["reason"]

    def confirmed(self) -> None:
        """The ordinary state: heard, Ready, and nothing to write."""
        self.beats.send()
        self.controller_turn()
        self.agent_turn()
        self.controller_turn()
        assert (self.reported("Ready"), self.reported("AgentAlive")) == (("True", "Confirmed"), ("True", "Heartbeat"))

    def silent(self) -> None:
        self.confirmed()
        self.bench.clock.now += 61
        self.controller_turn()
        assert self.reported("Ready") == ("Unknown", "AgentSilent")
        self.ready.clear()
        self.record_ready()
