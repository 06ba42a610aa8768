"""What the controller knows of the cluster at this moment.

Answers from what `controller.cache.state` has put here of the watches and of our own writes: one plan, all nodes, the
holders of a GPU, or all of it as a frozen Snapshot. Every answer is taken under one lock and belongs to the caller.
Never takes observations, starts a pass or calls an API.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from controller.api.plans import PlanReading
from controller.cache.agent_leases import AgentLease, AgentLeases
from controller.cache.bind_failures import BindFailures
from controller.cache.drain_turns import DrainTurns
from controller.cache.informers import FixedInformers, Informers
from controller.cache.plans import PlanStore
from controller.cache.pods import PodStore
from controller.cache.triggers import has_gpus
from controller.cache.unreadable import UnreadableObjects
from controller.model.serving import arrange
from controller.model.snapshot import Snapshot
from controller.model.views import NodeView, PlannerOptions, PlanView, PodKey, PodView
from crds.v1alpha1.names import LABEL_NODE_AGENT

POD_ORDER, PLAN_ORDER = attrgetter("key"), attrgetter("name")

FOREIGN_NOMINATION_SECONDS = 300.0
"""How long planning waits for a scheduler that nominated a pod: other clients write nominations as mere hints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long something is waited for; each is a setting of the controller, of the same name."""

    agent_silent_seconds: float = 60.0
    under_way_seconds: float = 300.0
    ageing_seconds: float = 600.0
    drain_seconds: float = 3600.0
    bind_seconds: float = 60.0


DEADLINES = Deadlines()
NO_INFORMERS = FixedInformers()


class ClusterCache:
    """Every method may be called from any thread. Its attributes are for `State`, which alone changes them."""

    def __init__(
        self,
        *,
        options: PlannerOptions,
        clock: Callable[[], float],
        deadlines: Deadlines = DEADLINES,
        informers: Informers = NO_INFORMERS,
        wall: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`informers` have what filters read besides pods and nodes; `wall` is the time of the API server's objects.

        Without it no pod has waited before it was observed.
        """
        self.clock, self.wall = clock, wall
        self._deadlines = deadlines
        self.informers = informers
        self.lock = threading.RLock()
        self.options = options
        self.pod_store = PodStore(
            default_spread=any(profile.default_spread for profile in options.profiles.values()),
            waited_seconds=lambda pod: max(0.0, wall() - pod.pending_since),
        )
        self.plan_store = PlanStore(
            agent_silent_seconds=deadlines.agent_silent_seconds, under_way_seconds=deadlines.under_way_seconds
        )
        self.lease_store = AgentLeases()
        self.bind_failures = BindFailures(bind_seconds=deadlines.bind_seconds)
        self.drain_turns = DrainTurns()
        self.unexamined: tuple[str, ...] = ()
        self.unreadable_objects = UnreadableObjects()
        self.node_views: dict[str, NodeView] = {}
        self.node_gone_at: dict[str, float] = {}
        self.planned_at = clock()
        """When the last snapshot was taken."""
        self.version = 0
        """Grows with all that nominations rest on: plans, Nodes, reservations, and pods that request GPUs."""

    def snapshot(self) -> Snapshot:
        """The cluster at this moment. Nodes (and their pods) that have nothing to do with GPUs are apart, if needed."""
        with self.lock:
            self.planned_at = self.clock()
            unknown = self.unreadable_objects.unknown_nodes()
            known = {name: node for name, node in self.node_views.items() if name not in unknown}
            nodes = {name: node for name, node in known.items() if self.plans_for(name)}
            others = {name: node for name, node in known.items() if name not in nodes}
            if not self.pod_store.needs_all_nodes():
                others = {}
            pods = [pod for pod in self.pod_store.bound.values() if pod.node in nodes]
            other_pods = [pod for pod in self.pod_store.bound.values() if pod.node in others] if others else []
            pending = self.pod_store.to_plan(self.node_exists, self.clock() - FOREIGN_NOMINATION_SECONDS)
            finished_gangs = self.pod_store.finished_gangs()
            plans = list(self.plan_store.views.values())
            reservations = self.pod_store.reservations()
            bind_failures = self.bind_failures.backing_off(self.clock())
            judged = [(pod, self.pod_store.judged[pod.key]) for pod in pending]
            aged = self.pod_store.waiting_since(self.clock() - self._deadlines.ageing_seconds)
            drained_for = self.pod_store.waiting_since(self.clock() - self._deadlines.drain_seconds)
            resting, unexamined = self.drain_turns.resting(self.clock()), self.unexamined
        return Snapshot(
            nodes=tuple(nodes[name] for name in sorted(nodes)),
            pods=tuple(sorted(pods, key=POD_ORDER)),
            pending=tuple(sorted(pending, key=POD_ORDER)),
            plans=tuple(sorted(plans, key=PLAN_ORDER)),
            reservations=reservations,
            aged=aged,
            drained_for=drained_for,
            resting=resting,
            unexamined=unexamined,
            bind_failures=bind_failures,
            finished_gangs=finished_gangs,
            context=self.informers.context(),
            other_nodes=tuple(others[name] for name in sorted(others)),
            other_pods=tuple(sorted(other_pods, key=POD_ORDER)),
            scheduler_names=self.options.scheduler_names,
            judged=arrange(judged, bind_failures),
        )

    def due_after(self, moment: float) -> float:
        """When time alone may change what a pass decides: a pod has waited long, a drain has; infinite: never."""
        ages = (self._deadlines.ageing_seconds, self._deadlines.drain_seconds)
        found = (*self.pod_store.moments(ages, FOREIGN_NOMINATION_SECONDS), *self.drain_turns.moments())
        return min((each for each in found if each > moment), default=math.inf)

    def plans(self) -> tuple[PlanReading, ...]:
        """Every readable plan, by name."""
        with self.lock:
            return tuple(self.plan_store.readings[name] for name in sorted(self.plan_store.readings))

    def plan(self, name: str) -> PlanReading | None:
        """The newest reading of one plan."""
        with self.lock:
            return self.plan_store.readings.get(name)

    def plan_views(self) -> Mapping[str, PlanView]:
        """Every readable plan with what depends on time, node and agent."""
        with self.lock:
            return dict(self.plan_store.views)

    @property
    def open_ends(self) -> bool:
        """A plan could not be written and is to be tried again, or informers have changes that were not taken yet."""
        with self.lock:
            return self.plan_store.any_refused or self.informers.changed

    @property
    def listing(self) -> bool:
        """What a pod needs is being listed for the first time: it may decide who serves the pod, and where it fits."""
        return self.informers.listing

    def plan_exists(self, name: str) -> bool:
        """There is a plan of this name, readable or not."""
        with self.lock:
            return name in self.plan_store.readings or ("plan", name) in self.unreadable_objects.reasons

    def plan_gone_for(self, name: str) -> float:
        """Seconds since the plan was seen to vanish; infinite if it was not there in our time."""
        with self.lock:
            return self.plan_store.gone_for(name, self.clock())

    def names(self) -> set[str]:
        """The names of all Nodes and of all readable plans, and of Nodes whose agents have a Lease."""
        with self.lock:
            return self.node_views.keys() | self.plan_store.readings.keys() | self.lease_store.nodes

    def nodes(self) -> Mapping[str, NodeView]:
        """Every readable node."""
        with self.lock:
            return dict(self.node_views)

    def node(self, name: str) -> NodeView | None:
        """One node; None: it is gone, or cannot be read."""
        with self.lock:
            return self.node_views.get(name)

    def node_exists(self, name: str) -> bool:
        """There is a Node of this name, readable or not."""
        with self.lock:
            return name in self.node_views or ("node", name) in self.unreadable_objects.reasons

    def node_gone_for(self, name: str) -> float:
        """Seconds since this plan's Node is known to be gone; 0 while it is there, readable or not."""
        with self.lock:
            if self.node_exists(name) or name not in self.node_gone_at:
                return 0.0
            return self.clock() - self.node_gone_at[name]

    def lease(self, name: str) -> AgentLease | None:
        """That of this Node's agent; None where there is none."""
        with self.lock:
            return self.lease_store.lease(name, self.clock())

    def agent_silent_for(self, name: str) -> float | None:
        """Seconds since the agent of this plan was last heard, or expected; None: heard, and alive."""
        with self.lock:
            view = self.plan_store.views.get(name)
            if view is None or view.agent_alive:
                return None
            return self.plan_store.heartbeats.silent_for(name, self.clock())

    def silent_agents(self) -> Mapping[str, bool]:
        """By plan on whose Node an agent belongs: it was not heard for longer than it may be silent."""
        with self.lock:
            now, views = self.clock(), self.plan_store.views
            return {
                name: not view.agent_alive and self.plan_store.heartbeats.silent(name, now)
                for name, view in views.items()
                if self._agent_belongs(name)
            }

    def _agent_belongs(self, name: str) -> bool:
        """The node is enabled, or not handed back yet. One that cannot be read may be."""
        node = self.node_views.get(name)
        if node is None:
            return self.node_exists(name)
        return node.partitioning is not None or LABEL_NODE_AGENT in node.labels

    def served_by_dra(self, name: str) -> tuple[bool, tuple[str, ...]] | None:
        """Whether NVIDIA's DRA driver lists GPUs of this node, and which of its resources DeviceClasses map."""
        listed, mapped, node = self.informers.dra_lists(name), self.informers.dra_resources(), self.node(name)
        if listed is None or node is None:
            return None
        return listed, tuple(sorted(mapped.intersection(node.allocatable)) if node.partitioning else ())

    def agent_problem(self, name: str) -> str:
        """Why the agent of this plan, which renews its Lease, cannot write the status; empty if it can."""
        with self.lock:
            return self.plan_store.heartbeats.problem(name)

    def pending(self) -> tuple[PodView, ...]:
        """Every unfinished pod without a node, by namespace and name."""
        with self.lock:
            return tuple(sorted(self.pod_store.pending.values(), key=POD_ORDER))

    def pending_pod(self, key: PodKey) -> PodView | None:
        """One of them, as it is now."""
        with self.lock:
            return self.pod_store.pending.get(key)

    def demanded_since(self) -> Mapping[str, float]:
        """Uids of pods that planning serves or gives a reason for, and since when they are pending, on our clock."""
        with self.lock:
            return self.pod_store.demanded_since()

    def pod(self, key: PodKey) -> PodView | None:
        """An unfinished pod, pending or bound."""
        with self.lock:
            return self.pod_store.pending.get(key) or self.pod_store.bound.get(key)

    def is_pending(self, key: PodKey, uid: str) -> bool:
        """The pod of this name and uid waits still."""
        pod = self.pending_pod(key)
        return pod is not None and pod.uid == uid

    def reservations(self) -> Mapping[str, str]:
        """Pod uid -> node of the last pass, for pods that are still pending."""
        with self.lock:
            return self.pod_store.reservations()

    def gpu_pods(self, node: str) -> tuple[PodView, ...]:
        """Bound pods that hold something of this node's GPUs."""
        with self.lock:
            return tuple(self.pod_store.gpu_pods.get(node, {}).values())

    def holders(self, node: str) -> frozenset[str]:
        """Uids of these pods, and the names of pods bound there whose holdings are unknown."""
        with self.lock:
            uids = frozenset(pod.uid for pod in self.pod_store.gpu_pods.get(node, {}).values())
            return uids | self.unreadable_objects.unknown_holders(node)

    def unreadable(self) -> Mapping[tuple[str, str], str]:
        """Kind and name of each object that is left out, with the reason."""
        with self.lock:
            return dict(sorted(self.unreadable_objects.reasons.items()))

    def plans_for(self, node: str) -> bool:
        """Planning needs this node itself, not only as a place of other pods."""
        view = self.node_views.get(node)
        return node in self.plan_store.views or (view is not None and has_gpus(view))
