"""The one mutable thing of the controller: what the watches have brought, and what was written since.

Takes views and readings from the watch threads and from our own writes; `controller.cache.cluster` answers from them.
Whatever may change the result of planning is put into the batch window as a key that names it. Only new requests of
pods extend the window; changes of capacity open it, and not even that while no pod waits for partitions. Never calls
an API.
"""

import math
import threading
from collections.abc import Callable, Collection, Mapping

from controller.api.plan_reader import PlanReader
from controller.api.plans import PlanReading
from controller.api.reading import Unreadable
from controller.cache.batcher import Batcher
from controller.cache.cluster import ClusterCache
from controller.cache.pods import PodChange
from controller.cache.triggers import has_gpus, lacks_held, odd_names, shares_due
from controller.model.equal_shares import most_units
from controller.model.misnamed import mig_names
from controller.model.results import Drained
from controller.model.serving import Serving
from controller.model.views import NodeView, PlanView, PodKey, PodView

GONE_PLAN_SECONDS = 86400.0
"""How long a deleted plan is remembered: far longer than a late answer, or the pause before an empty one returns."""

RESYNC_SECONDS = 300.0
"""The longest time between passes while a pod waits, in case a change failed to start one."""
DUE_SECONDS = 30.0
"""No pass starts by time alone so shortly after another."""


class State:
    """Every method may be called from any thread."""

    def __init__(self, cluster: ClusterCache, *, window: Batcher[str], awake: threading.Event | None = None) -> None:
        """`awake` is set when something has changed."""
        self.cluster, self._lock, self._clock, self._options = cluster, cluster.lock, cluster.clock, cluster.options
        self._pods, self._plans, self._nodes = cluster.pod_store, cluster.plan_store, cluster.node_views
        self._unreadable = cluster.unreadable_objects
        self._window = window
        self._awake = awake or threading.Event()
        self._dra_resources = self.cluster.informers.dra_resources()
        """As the pending pods were judged last."""
        self._odd_names: frozenset[str] = frozenset()
        """Of all nodes."""
        self._offers: dict[str, tuple[int, frozenset[str]]] = {}
        """By plan: GiB of its largest GPU with ACK's resource, and names of MIG instances that its GPUs can have."""
        self._most_units, self._mig_names = 0, frozenset[str]()
        """Of all of them."""
        self.read_plan = PlanReader(self._clock)
        """For every caller of `observe_plan` and `plan_answered`."""
        self._drained_for: set[str] = set()
        """Uids of the pods for which a GPU is drained."""
        self._due_at = math.inf
        """When the next pass is due by time alone."""
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, listener: Callable[[str], None]) -> None:
        """`listener` receives the name of each Node or plan that changed, if only by time; it returns at once."""
        self._listeners.append(listener)

    def observe_pod(self, key: PodKey, observed: PodView | Unreadable | None) -> None:
        """A pod as it is now; None: it is gone."""
        if isinstance(observed, PodView) and (observed.gpu or observed.misnamed or observed.anti_affinity):
            self.cluster.informers.require(observed)
        with self._lock:
            left_out = self._unreadable.unknown_nodes()
            old = self._pods.known(key)
            new = self._unreadable.pod(key, observed, old)
            for node in sorted(left_out - self._unreadable.unknown_nodes()):
                self._capacity_changed(node)
            self._pod_changed(self._pods.observe(key, new, serving=self._serving(), now=self._clock()))
            if any(pod is not None and pod.gpu for pod in (old, new)):
                self.cluster.version += 1
        self._awake.set()

    def observe_node(self, name: str, observed: NodeView | Unreadable | None) -> None:
        """A node as it is now; None: it is gone."""
        with self._lock:
            new = self._unreadable.readable("node", name, observed)
            old = self._nodes.pop(name, None)
            if new is not None:
                self._nodes[name] = new
            before, after = odd_names(old, self._options), odd_names(new, self._options)
            if any(not self._on_another(resource, new) for resource in before ^ after):
                found = (odd_names(other, self._options) for other in self._nodes.values())
                self._odd_names = frozenset().union(*found)
                self._judge_again()
            ours = any(node is not None and has_gpus(node) for node in (old, new))
            if old != new and (ours or self._pods.needs_all_nodes()):
                self._capacity_changed(name)
            self._refresh(name)
            self._check_shares(name)
            self._notify(name)
        self._awake.set()

    def observe_plan(self, name: str, observed: PlanReading | Unreadable | None) -> None:
        """A plan as the watch shows it; None: it is gone."""
        self.cluster.informers.require_dra()
        with self._lock:
            now = self._clock()
            new = self._unreadable.readable("plan", name, observed)
            if observed is None:
                changed = self._plans.gone(name, now=now)
            elif new is None:
                changed = self._plans.hide(name)
            else:
                changed = self._plans.observe(new, node_uid=self._node_uid(name), now=now)
            self._plan_observed(name, changed=changed)
        self._awake.set()

    def observe_heartbeat(self, node: str, renew_time: str, problem: str = "") -> None:
        """The Lease of a node's agent. The common case, thousands a minute, changes nothing."""
        with self._lock:
            self._plans.heartbeats.observe(node, renew_time, self._clock(), problem=problem)
            view = self._plans.views.get(node)
            if view is None or (view.agent_alive and not problem):
                return
            self._refresh(node)
        self._awake.set()

    def excuse_agents(self, seconds: float) -> None:
        """Their Leases could not be watched for so long, until now."""
        with self._lock:
            self._plans.heartbeats.excuse(seconds, self._clock())
            for name in [name for name, view in self._plans.views.items() if not view.agent_alive]:
                self._refresh(name)

    def observe_lease(self, node: str, version: str | None) -> None:
        """The Lease of a node's agent, whatever is in it; None: it is gone."""
        with self._lock:
            if version is None and node not in self._plans.readings:
                self._plans.heartbeats.forget(node)
            if self.cluster.lease_store.observe(node, version, self._clock()):
                self._notify(node)

    def tick(self) -> None:
        """Take what the informers have brought, and let deadlines pass: of agents, GPUs, pods, Nodes that are gone."""
        with self._lock:
            now = self._clock()
            self._take_changes()
            for name in self._plans.overdue(now):
                self._refresh(name)
            self.cluster.bind_failures.retain(self._pods.demands)
            for uid in self.cluster.bind_failures.overdue(now):
                self._window.add(_pod_key(uid))
            self._plans.forget_gone(now, after_seconds=GONE_PLAN_SECONDS)
            if self._pods.demands and now - self.cluster.planned_at >= RESYNC_SECONDS:
                self._window.add("resync")
            if self._pods.demands and now >= self._due_at:
                self._due_at = math.inf  # until a pass succeeds: one that fails has a back-off
                self._window.add("pods that have waited long")
            absent = self._plans.readings.keys() - self._nodes.keys()
            orphans = [name for name in absent if not self.cluster.node_exists(name)]
            self.cluster.node_gone_at = {name: self.cluster.node_gone_at.get(name, now) for name in orphans}

    def plan_answered(self, name: str, answer: PlanReading | Unreadable) -> None:
        """A plan as the API server answered our own request: it counts at once, the watch may bring it later."""
        if isinstance(answer, Unreadable):
            self.observe_plan(name, answer)
            return
        with self._lock:
            changed = self._plans.accept(answer, node_uid=self._node_uid(name), now=self._clock())
            self._plan_observed(name, changed=changed)
        self._awake.set()

    def expect_planned(self, name: str, planned_json: str) -> None:
        """We are about to write this as `planned`: seeing it is no reason for another pass."""
        with self._lock:
            self._plans.expect(name, planned_json)

    def reserve(self, reservations: Mapping[str, str], *, ready: Collection[str] = ()) -> None:
        """Pod uid -> node, as the pass that has just ended placed them; for `ready` ones all partitions exist."""
        with self._lock:
            self.cluster.version += 1
            self._pods.reserve(dict(reservations))
            found = set(ready)
            pods = [pod for pod in self._pods.pending.values() if pod.uid in found]
            self.cluster.bind_failures.assigned([(pod, reservations[pod.uid]) for pod in pods], self._clock())

    def note_drained(self, drained: Collection[Drained]) -> None:
        """What the pass which has just ended drains for pods that have waited long."""
        with self._lock:
            self._drained_for = {one.uid for one in drained}
            pending = {pod.uid for pod in self._pods.pending.values()}
            if self.cluster.drain_turns.note(drained, pending, self._clock(), wall=self.cluster.wall()):
                self._window.add("a drain that is given up")
            # With a backlog there is always a pod that has just waited long.
            self._due_at = max(self.cluster.due_after(self.cluster.planned_at), self.cluster.planned_at + DUE_SECONDS)

    def note_unexamined(self, uids: tuple[str, ...]) -> None:
        """Pods for which the pass that has just ended had no work left."""
        with self._lock:
            self.cluster.unexamined = uids

    def withdraw_reservations(self, uids: Collection[str]) -> None:
        """Drop the reservations of these pods: the plans that they rest on were not written."""
        with self._lock:
            self.cluster.version += 1
            self._pods.withdraw_reservations(uids)

    def write_refused(self, name: str, message: str, *, until: float) -> None:
        """The API server refused our write of this plan: its node is planned around until then."""
        with self._lock:
            if name not in self._plans.readings:
                return  # it was deleted meanwhile
            self._plans.refused(name, message, until=until)
            self._refresh(name)
        self._awake.set()

    def nominate(self, uid: str, node: str) -> None:
        """We are about to nominate this pod."""
        with self._lock:
            self._pods.nominate(uid, node)

    def _pod_changed(self, change: PodChange) -> None:
        if change.done:
            self._window.discard(_pod_key(change.done))
        if change.done in self._drained_for:
            self._window.add("a drain without its pod")
        if change.bound is not None:
            self.cluster.bind_failures.bound(change.bound, came_at=change.came_at)
            view = self._plans.views.get(change.bound.node)
            if view is not None and any((name, change.bound.title) in view.shown for name, _ in change.bound.gpu):
                # The status came first: the pass that it started counted the pod as a holder and as one that waits.
                self._capacity_changed(change.bound.node)
        if change.demand:
            self._window.add(_pod_key(change.demand), extend=True)
        if change.released and (change.everywhere or self.cluster.plans_for(change.released)):
            self._capacity_changed(change.released)
        if change.unplaced:
            self._window.add("pods without a place")

    def _judge_again(self) -> None:
        """What decides who serves a pod has changed."""
        for change in self._pods.judge_again(self._serving(), now=self._clock()):
            self._pod_changed(change)

    def _take_changes(self) -> None:
        """A DeviceClass decides who serves a pod, other objects where it fits."""
        changed = self.cluster.informers.take_changes()
        dra_resources = self.cluster.informers.dra_resources()
        if dra_resources != self._dra_resources:
            self._dra_resources = dra_resources
            self._judge_again()
        if self._pods.demands:
            for path in sorted(changed):
                self._window.add(f"objects of {path}")

    def _on_another(self, resource: str, node: NodeView | None) -> bool:
        """A node besides this one has it."""
        return any(resource in odd_names(each, self._options) for each in self._nodes.values() if each is not node)

    def _serving(self) -> Serving:
        """Whose requests are served."""
        return Serving(
            scheduler_names=self._options.scheduler_names,
            dra_resources=self._dra_resources,
            advertised=self._odd_names,
            mig_names=self._mig_names,
            most_units=self._most_units,
        )

    def _node_uid(self, name: str) -> str:
        node = self._nodes.get(name)
        return node.uid if node is not None else ""

    def _refresh(self, name: str) -> None:
        if name not in self._plans.readings:
            return
        changed = self._plans.refresh(name, node_uid=self._node_uid(name), now=self._clock())
        self._plan_observed(name, changed=changed)

    def _notify(self, name: str) -> None:
        """This Node or plan is to be judged again."""
        self.cluster.version += 1
        for listener in self._listeners:
            listener(name)

    def _plan_observed(self, name: str, *, changed: bool) -> None:
        if changed:
            self._plan_changed(name)
        self._notify(name)

    def _plan_changed(self, name: str) -> None:
        view = self._plans.views.get(name)
        if view is not None and lacks_held(view):
            self._window.add(f"node {name}")
        self._note_offer(name, view)
        self._check_shares(name)
        self._capacity_changed(name)

    def _note_offer(self, name: str, view: PlanView | None) -> None:
        offer = (most_units([view]), mig_names([view])) if view is not None else None
        if offer == self._offers.get(name):
            return
        if offer is None:
            del self._offers[name]
        else:
            self._offers[name] = offer
        before, offers = self._serving(), self._offers.values()
        self._most_units = max((units for units, _ in offers), default=0)
        self._mig_names = frozenset().union(*(names for _, names in offers))
        if self._serving() != before:
            self._judge_again()

    def _check_shares(self, name: str) -> None:
        """Equal shares are planned whether or not a pod waits."""
        if shares_due(self._nodes.get(name), self._plans.views.get(name), self._options):
            self._window.add(f"node {name}")

    def _capacity_changed(self, node: str) -> None:
        """Something about this node changed that planning reads; without a waiting pod no pass would gain from it."""
        if self._pods.demands:
            self._window.add(f"node {node}")


def _pod_key(uid: str) -> str:
    return f"pod {uid}"
