"""The one mutable thing of the controller: what the watches have brought, and what was written since.

Takes views and readings from the watch threads and from our own writes, and returns a frozen Snapshot. Whatever may
change the result of planning is put into the batch window as a key that says what it was. Only new requests of pods
extend the window; changes of capacity open it, and not even that while no pod waits for partitions. Never calls an API.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from operator import attrgetter

from controller.batcher import Batcher
from controller.parse import Unreadable, enablement
from controller.parse_plan import PlanReader, PlanReading
from controller.plan_store import PlanStore
from controller.pod_store import PodStore
from controller.scheduling import NO_CONTEXT, SchedulingContext
from controller.triggers import has_gpus, lacks_held
from controller.unbound import Unbound
from controller.unreadable import UnreadableObjects
from controller.views import NodeView, PlannerOptions, PlanView, PodKey, PodView, Snapshot

log = logging.getLogger(__name__)
POD_ORDER, PLAN_ORDER = attrgetter("key"), attrgetter("name")

GONE_PLAN_SECONDS = 86400.0
"""How long a deleted plan is remembered: far longer than a late answer, or the pause before an empty one returns."""

RESYNC_SECONDS = 300.0
"""While a pod waits, planning is never longer ago: a net under changes that should have started a pass and did not."""

FOREIGN_NOMINATION_SECONDS = 300.0
"""How long planning waits for the scheduler that another's nomination speaks of; others write it as a mere hint."""


class State:
    """Every method may be called from any thread."""

    def __init__(
        self,
        *,
        window: Batcher[str],
        options: PlannerOptions,
        clock: Callable[[], float],
        agent_silent_seconds: float = 60.0,
        under_way_seconds: float = 300.0,
        ageing_seconds: float = 600.0,
        bind_seconds: float = 60.0,
        changed: Callable[[], None] = lambda: None,
        remark: Callable[[NodeView, str], None] = lambda _node, _text: None,
        require: Callable[[PodView], None] = lambda _pod: None,
        context: Callable[[], SchedulingContext] = lambda: NO_CONTEXT,
    ) -> None:
        """`remark` hears what is odd about a node's labels, `require` of pods whose filters need more of `context`."""
        self._window = window
        self._clock = clock
        self._changed = changed
        self._remark = remark
        self._ageing_seconds = ageing_seconds
        self._unbound = Unbound(bind_seconds=bind_seconds)
        self._require = require
        self._context = context
        self._lock = threading.RLock()
        self._pods = PodStore(options)
        self._plans = PlanStore(agent_silent_seconds=agent_silent_seconds, under_way_seconds=under_way_seconds)
        self._nodes: dict[str, NodeView] = {}
        self._node_gone_at: dict[str, float] = {}
        self._planned_at = clock()
        self._unreadable = UnreadableObjects()
        self.read_plan = PlanReader()
        """For whoever observes plans."""
        self._listeners: list[Callable[[str], None]] = []
        self.version = 0
        """Grows with all that nominations rest on: plans, Nodes, promises, and pods that request GPUs."""

    def listen(self, listener: Callable[[str], None]) -> None:
        """`listener` hears the name of each Node or plan that changed, by time alone included; it returns at once."""
        self._listeners.append(listener)

    # ----------------------------------------------------------------------------------- from the watches

    def observe_pod(self, key: PodKey, seen: PodView | Unreadable | None) -> None:
        """A pod as it is now; None: it is gone."""
        if isinstance(seen, PodView) and (seen.gpu or seen.anti_affinity):
            self._require(seen)
        with self._lock:
            left_out = self._unreadable.unknown_nodes()
            old = self._pods.known(key)
            new = self._unreadable.pod(key, seen, old)
            for node in sorted(left_out - self._unreadable.unknown_nodes()):
                self._capacity(node)
            change = self._pods.observe(key, new, now=self._clock())
            if change.served:
                self._window.discard(_pod_key(change.served))
            if change.bound is not None:
                self._unbound.bound(change.bound, came_at=change.came_at)
            if change.asks:
                self._window.add(_pod_key(change.asks), extend=True)
            if change.left and (change.around or self._plans_for(change.left)):
                self._capacity(change.left)
            if change.unplaced:
                self._window.add("pods without a place")
            if any(pod is not None and pod.gpu for pod in (old, new)):
                self.version += 1
        self._changed()

    def observe_node(self, name: str, seen: NodeView | Unreadable | None) -> None:
        """A node as it is now; None: it is gone."""
        with self._lock:
            new = self._unreadable.readable("node", name, seen)
            old = self._nodes.pop(name, None)
            if new is not None:
                self._nodes[name] = new
                self._look_at_labels(old, new)
            ours = any(node is not None and has_gpus(node) for node in (old, new))
            if old != new and (ours or self._pods.look_around()):
                self._capacity(name)
            self._refresh(name)
            self._noticed(name)
        self._changed()

    def observe_plan(self, name: str, seen: PlanReading | Unreadable | None) -> None:
        """A plan as it is now, from the watch or in answer to a write; None: it is gone."""
        with self._lock:
            now = self._clock()
            new = self._unreadable.readable("plan", name, seen)
            if seen is None:
                changed = self._plans.gone(name, now=now)
            elif new is None:
                changed = self._plans.hide(name)
            else:
                changed = self._plans.observe(new, node_uid=self._node_uid(name), now=now)
            if changed:
                self._plan_changed(name)
            self._noticed(name)
        self._changed()

    def observe_heartbeat(self, node: str, renew_time: str, problem: str = "") -> None:
        """The Lease of a node's agent. The common case, thousands a minute, changes nothing."""
        with self._lock:
            self._plans.heartbeats.observe(node, renew_time, self._clock(), problem=problem)
            view = self._plans.views.get(node)
            if view is None or (view.agent_alive and not problem):
                return
            self._refresh(node)
        self._changed()

    def tick(self) -> None:
        """Let deadlines pass: agents that fell silent, GPUs that took too long, Nodes that are gone."""
        with self._lock:
            now = self._clock()
            for name in self._plans.overdue(now):
                self._refresh(name)
            self._unbound.keep(self._pods.wanting)
            for uid in self._unbound.overdue(now):
                self._window.add(_pod_key(uid))
            self._plans.forget_gone(now, after_seconds=GONE_PLAN_SECONDS)
            if self._pods.wanting and now - self._planned_at >= RESYNC_SECONDS:
                self._window.add("resync")
            absent = self._plans.readings.keys() - self._nodes.keys()
            orphans = [name for name in absent if not self.node_exists(name)]
            self._node_gone_at = {name: self._node_gone_at.get(name, now) for name in orphans}

    # ---------------------------------------------------------------------------------- from our own acts

    def expect_planned(self, name: str, planned_json: str) -> None:
        """We are about to write this as `planned`: seeing it is no reason for another pass."""
        with self._lock:
            self._plans.expect(name, planned_json)

    def promise(self, promises: Mapping[str, str], *, ready: Collection[str] = ()) -> None:
        """Pod uid -> node, as the pass that has just ended placed them; for `ready` ones all partitions exist."""
        with self._lock:
            self.version += 1
            self._pods.promise(dict(promises))
            found = set(ready)
            pods = [pod for pod in self._pods.pending.values() if pod.uid in found]
            self._unbound.assigned([(pod, promises[pod.uid]) for pod in pods], self._clock())

    def withdraw_promises(self, uids: Collection[str]) -> None:
        """The plans that these pods were promised were not written."""
        with self._lock:
            self.version += 1
            self._pods.withdraw_promises(uids)

    def write_refused(self, name: str, message: str, *, until: float) -> None:
        """The API server refused our write of this plan: its node is planned around until then."""
        with self._lock:
            if name not in self._plans.readings:
                return  # it was deleted meanwhile
            self._plans.refused(name, message, until=until)
            self._refresh(name)
        self._changed()

    def nominate(self, uid: str, node: str) -> None:
        """We are about to nominate this pod."""
        with self._lock:
            self._pods.nominate(uid, node)

    # -------------------------------------------------------------------------------------------- reading

    def snapshot(self) -> Snapshot:
        """The cluster at this moment. Nodes (and their pods) that have nothing to do with GPUs are apart, if needed."""
        with self._lock:
            self._planned_at = self._clock()
            unknown = self._unreadable.unknown_nodes()
            known = {name: node for name, node in self._nodes.items() if name not in unknown}
            nodes = {name: node for name, node in known.items() if self._plans_for(name)}
            others = {name: node for name, node in known.items() if name not in nodes}
            if not self._pods.look_around():
                others = {}
            pods = [pod for pod in self._pods.bound.values() if pod.node in nodes]
            other_pods = [pod for pod in self._pods.bound.values() if pod.node in others] if others else []
            pending = self._pods.to_plan(self.node_exists, self._clock() - FOREIGN_NOMINATION_SECONDS)
            finished_gangs = self._pods.finished_gangs()
            plans = list(self._plans.views.values())
            promises = self._pods.promises()
            unbound = self._unbound.backing_off(self._clock())
            aged = self._pods.waiting_since(self._clock() - self._ageing_seconds)
        return Snapshot(
            nodes=tuple(nodes[name] for name in sorted(nodes)),
            pods=tuple(sorted(pods, key=POD_ORDER)),
            pending=tuple(sorted(pending, key=POD_ORDER)),
            plans=tuple(sorted(plans, key=PLAN_ORDER)),
            promises=promises,
            aged=aged,
            unbound=unbound,
            finished_gangs=finished_gangs,
            context=self._context(),
            other_nodes=tuple(others[name] for name in sorted(others)),
            other_pods=tuple(sorted(other_pods, key=POD_ORDER)),
        )

    def plans(self) -> tuple[PlanReading, ...]:
        """Every readable plan, by name."""
        with self._lock:
            return tuple(self._plans.readings[name] for name in sorted(self._plans.readings))

    def plan(self, name: str) -> PlanReading | None:
        """The newest reading of one plan."""
        with self._lock:
            return self._plans.readings.get(name)

    def plan_views(self) -> Mapping[str, PlanView]:
        """Every readable plan with what depends on time, node and agent."""
        with self._lock:
            return dict(self._plans.views)

    @property
    def writes_refused(self) -> bool:
        """Some plan could not be written and is to be tried again."""
        with self._lock:
            return self._plans.any_refused

    def plan_exists(self, name: str) -> bool:
        """There is a plan of this name, readable or not."""
        with self._lock:
            return name in self._plans.readings or ("plan", name) in self._unreadable.reasons

    def plan_gone_for(self, name: str) -> float:
        """Seconds since the plan was seen to vanish; infinite if it was not there in our time."""
        with self._lock:
            return self._plans.gone_for(name, self._clock())

    def names(self) -> set[str]:
        """The names of all Nodes and of all readable plans."""
        with self._lock:
            return self._nodes.keys() | self._plans.readings.keys()

    def nodes(self) -> Mapping[str, NodeView]:
        """Every readable node."""
        with self._lock:
            return dict(self._nodes)

    def node(self, name: str) -> NodeView | None:
        """One node; None: it is gone, or cannot be read."""
        with self._lock:
            return self._nodes.get(name)

    def node_exists(self, name: str) -> bool:
        """There is a Node of this name, readable or not."""
        with self._lock:
            return name in self._nodes or ("node", name) in self._unreadable.reasons

    def node_gone_for(self, name: str) -> float:
        """Seconds since this plan's Node is known to be gone; 0 while it is there, readable or not."""
        with self._lock:
            if self.node_exists(name) or name not in self._node_gone_at:
                return 0.0
            return self._clock() - self._node_gone_at[name]

    def agent_silent_for(self, name: str) -> float | None:
        """Seconds since the agent of this plan was last heard, or expected; None: heard, and alive."""
        with self._lock:
            view = self._plans.views.get(name)
            if view is None or view.agent_alive:
                return None
            return self._plans.heartbeats.silent_for(name, self._clock())

    def agent_problem(self, name: str) -> str:
        """Why the agent of this plan, which renews its Lease, cannot write the status; empty if it can."""
        with self._lock:
            return self._plans.heartbeats.problem(name)

    def pending(self) -> tuple[PodView, ...]:
        """Every unfinished pod without a node, by namespace and name."""
        with self._lock:
            return tuple(sorted(self._pods.pending.values(), key=POD_ORDER))

    def pending_pod(self, key: PodKey) -> PodView | None:
        """One of them, as it is now."""
        with self._lock:
            return self._pods.pending.get(key)

    def promises(self) -> Mapping[str, str]:
        """Pod uid -> node of the last pass, for pods that are still pending."""
        with self._lock:
            return self._pods.promises()

    def gpu_pods(self, node: str) -> tuple[PodView, ...]:
        """Bound pods that hold something of this node's GPUs."""
        with self._lock:
            return tuple(self._pods.gpu_pods.get(node, {}).values())

    def holders(self, node: str) -> frozenset[str]:
        """Uids of these pods, and the names of pods bound there of which nobody knows what they hold."""
        with self._lock:
            uids = frozenset(pod.uid for pod in self._pods.gpu_pods.get(node, {}).values())
            return uids | self._unreadable.unknown_holders(node)

    def unreadable(self) -> Mapping[tuple[str, str], str]:
        """Kind and name of each object that is left out, with the reason."""
        with self._lock:
            return dict(sorted(self._unreadable.reasons.items()))

    # --------------------------------------------------------------------------------------------- inside

    def _look_at_labels(self, old: NodeView | None, new: NodeView) -> None:
        found = enablement(new.labels).remark
        if found and (old is None or enablement(old.labels).remark != found):
            log.warning("node %s: %s", new.name, found)
            self._remark(new, found)

    def _node_uid(self, name: str) -> str:
        node = self._nodes.get(name)
        return node.uid if node is not None else ""

    def _refresh(self, name: str) -> None:
        if name not in self._plans.readings:
            return
        if self._plans.refresh(name, node_uid=self._node_uid(name), now=self._clock()):
            self._plan_changed(name)
        self._noticed(name)

    def _noticed(self, name: str) -> None:
        self.version += 1
        for listener in self._listeners:
            listener(name)

    def context_changed(self, what: str) -> None:
        """Something that filters read beside pods and nodes is other than before."""
        with self._lock:
            if self._pods.wanting:
                self._window.add(what)
        self._changed()

    def _plan_changed(self, name: str) -> None:
        view = self._plans.views.get(name)
        if view is not None and lacks_held(view):
            self._window.add(f"node {name}")
        self._capacity(name)

    def _plans_for(self, node: str) -> bool:
        """Planning needs this node itself, not only as a place of other pods."""
        view = self._nodes.get(node)
        return node in self._plans.views or (view is not None and has_gpus(view))

    def _capacity(self, node: str) -> None:
        """Something about this node changed that planning looks at; without a waiting pod nobody would gain."""
        if self._pods.wanting:
            self._window.add(f"node {node}")


def _pod_key(uid: str) -> str:
    return f"pod {uid}"
