"""All unfinished pods, bound and pending, and what a change of one means for planning.

Takes the view of one pod at a time and returns whether the pod needs a pass, needs none any more, or has released
something that others may use. Owned by `controller.cache.state`, under whose lock every method runs; knows no plans and
no clock.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from controller.cache.triggers import counts_differently, preempts_on, same_request
from controller.model.demand import Demand
from controller.model.serving import DemandOrRefusal, Serving, judge, wants_planning
from controller.model.views import PodKey, PodView
from kube.pods import FINISHED

HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodChange:
    """What follows from one observation; empty texts: nothing."""

    demand: str = ""
    """Uid of a pod that needs planning, new or with new requests."""
    done: str = ""
    """Uid of a pod that needs no planning any more."""
    released: str = ""
    """Node on which resources, or a reservation of them, are for others now, or pods are other than before."""
    bound: PodView | None = None
    """The pod, if it was pending and has got a node now."""
    came_at: float = 0.0
    """Since when it was pending."""
    unplaced: bool = False
    """This pod leaves the queue while others lack a place: plan again with what it would have used."""
    everywhere: bool = False
    """Where waiting pods fit depends on pods of all nodes, so that `released` matters wherever it is."""


class PodStore:
    """All unfinished pods of the cluster."""

    def __init__(self, *, default_spread: bool, waited_seconds: Callable[[PodView], float] = lambda _pod: 0.0) -> None:
        """`default_spread`: a scheduler spreads pods that have no constraints of their own.

        `waited_seconds`: how long a pod that is observed first, or differently, has been so at least: a controller that
        was restarted has not seen it.
        """
        self._waited_seconds = waited_seconds
        self._default_spread = default_spread
        self._serving = Serving()
        self._reservations: dict[str, str] = {}
        self._reserved_nodes: frozenset[str] = frozenset()
        self._unplaced: set[str] = set()
        """Uids of pods that needed a place when the last pass ended, and had none."""
        self._nominated: dict[str, str] = {}
        self._now = 0.0
        self.bound: dict[PodKey, PodView] = {}
        self.pending: dict[PodKey, PodView] = {}
        self.judged: dict[PodKey, DemandOrRefusal] = {}
        """What each pending pod demands, or why it is not served, judged once as it was observed."""
        self._came_at: dict[str, float] = {}
        """Uids of pending pods, and since when they are."""
        self.demands: dict[str, float] = {}
        """Uids of pending pods that planning can serve, or must give a reason for, and since when."""
        self._served_since: dict[str, float] = {}
        """Uids of pending pods that planning serves, and since when it could."""
        self._constrained: set[str] = set()
        """Those of them whose own constraints depend on other pods."""
        self.gpu_pods: dict[str, dict[PodKey, PodView]] = {}
        """Per node, the bound pods that hold something of its GPUs."""
        self._preempting: dict[str, tuple[str, float]] = {}
        """Uids of pending pods that another nominated, with the node and since when."""
        self._finished_gangs: set[tuple[str, str]] = set()
        """Namespace and name of gangs of which a bound member has ended by itself."""
        self._far_reaching: set[PodKey] = set()
        """Bound pods that keep others away from more than their own node."""

    def observe(self, key: PodKey, observed: PodView | None, *, serving: Serving, now: float = 0.0) -> PodChange:
        """Take one pod as it is now; None or a finished one: it is gone. `serving`: whose requests are served now."""
        self._serving = serving
        needed_all_nodes = self.needs_all_nodes()  # before as well: the pod that leaves may be the reason
        change = self._with_unplaced(self._observe(key, observed, now))
        return replace(change, everywhere=needed_all_nodes or self.needs_all_nodes()) if change.released else change

    def _with_unplaced(self, change: PodChange) -> PodChange:
        if change.done not in self._unplaced:
            return change
        self._unplaced.discard(change.done)
        return replace(change, unplaced=bool(self._unplaced))

    def _observe(self, key: PodKey, observed: PodView | None, now: float) -> PodChange:
        self._now = now
        new = None if observed is None or observed.phase in FINISHED else self._with_our_nomination(observed)
        old = self._remove(key)
        if new is not None:
            (self.bound if new.node else self.pending)[key] = new
            if not new.node:
                self.judged[key] = judge(new, self._serving)
                self._note_served(new, waited_seconds=self._waited_seconds(new))
                self._came_at.setdefault(new.uid, now)
            if new.node and new.gpu:
                self.gpu_pods.setdefault(new.node, {})[key] = new
            self._note_preemption(new)
            if new.node and any(term.topology_key != HOSTNAME for term in new.anti_affinity):
                self._far_reaching.add(key)
        if old is not None and (new is None or new.uid != old.uid):
            gone = self._ended(old)
            return gone if new is None else replace(gone, demand=self._demand(new))
        return self._changed(old, new) if new is not None else PodChange()

    def judge_again(self, serving: Serving, *, now: float) -> list[PodChange]:
        """Other requests than before are served now: what follows for the pending pods."""
        self._serving, self._now = serving, now
        changes = []
        for pod in self.pending.values():
            self.judged[pod.key] = judge(pod, serving)
            was_demanded = pod.uid in self.demands
            self._note_served(pod, waited_seconds=0.0)
            if self._demand(pod):
                change = PodChange() if was_demanded else PodChange(demand=pod.uid)
            else:
                change = self._without_demand(pod.uid)
            changes.append(self._with_unplaced(change))
        return [change for change in changes if change != PodChange()]

    def known(self, key: PodKey) -> PodView | None:
        """The last view of a pod that is not finished."""
        return self.bound.get(key) or self.pending.get(key)

    def reserve(self, reservations: dict[str, str]) -> None:
        """Pod uid -> node, as the last pass placed them."""
        self._reservations = reservations
        self._reserved_nodes = frozenset(reservations.values())
        self._unplaced = self.demands.keys() - reservations.keys()

    def withdraw_reservations(self, uids: Collection[str]) -> None:
        """Forget the reservations of these pods."""
        for uid in uids:
            self._reservations.pop(uid, None)

    def reservations(self) -> dict[str, str]:
        """Those of them whose pods are still pending."""
        found = {pod.uid: self._reservations.get(pod.uid) for pod in self.pending.values()}
        return {uid: node for uid, node in found.items() if node is not None}

    def waiting_since(self, moment: float) -> frozenset[str]:
        """Uids of pods that have waited for a place since then or longer; behind a gate, or unserved, none does."""
        return frozenset(uid for uid, since in self._served_since.items() if since <= moment and uid in self.demands)

    def moments(self, ages: Collection[float], nomination_seconds: float) -> Iterator[float]:
        """When pods without a place will be of each of these ages, and when nominations by others end."""
        since = [self._served_since[uid] for uid in self._unplaced if uid in self._served_since]
        yield from (each + age for age in ages for each in since)
        yield from (each + nomination_seconds for _, each in self._preempting.values())

    def _note_served(self, pod: PodView, *, waited_seconds: float) -> None:
        if isinstance(self.judged[pod.key], Demand):
            self._served_since.setdefault(pod.uid, self._now - waited_seconds)
        else:
            self._served_since.pop(pod.uid, None)

    def to_plan(self, node_exists: Callable[[str], bool], moment: float) -> list[PodView]:
        """Pending pods; without the nomination of another to a missing node, or one that is older than `moment`."""
        return [
            replace(pod, nominated_node="") if self._nomination_lapsed(pod, node_exists, moment) else pod
            for pod in self.pending.values()
        ]

    def _nomination_lapsed(self, pod: PodView, node_exists: Callable[[str], bool], moment: float) -> bool:
        node, since = self._preempting.get(pod.uid, ("", 0.0))
        return bool(node) and (since <= moment or not node_exists(node))

    def _note_preemption(self, pod: PodView) -> None:
        node = preempts_on(pod)
        if not node:
            self._preempting.pop(pod.uid, None)
        elif self._preempting.get(pod.uid, ("",))[0] != node:
            self._preempting[pod.uid] = (node, self._now)

    def finished_gangs(self) -> frozenset[tuple[str, str]]:
        """Gangs with a pending member of which another has run and ended; others are forgotten here."""
        if self._finished_gangs:
            pods = (*self.pending.values(), *self.bound.values())
            self._finished_gangs &= {(pod.namespace, pod.gang) for pod in pods if pod.gang}
        return frozenset(self._finished_gangs)

    def demanded_since(self) -> dict[str, float]:
        """Uids in `demands`, and since when these pods are pending: before that a scheduler tries them once."""
        return {uid: self._came_at.get(uid, since) for uid, since in self.demands.items()}

    def needs_all_nodes(self) -> bool:
        """Where pods with a demand fit depends on pods of nodes that have nothing to do with GPUs."""
        return bool(self.demands and (self._constrained or self._far_reaching or self._default_spread))

    def nominate(self, uid: str, node: str) -> None:
        """We are about to nominate this pod: its next views are marked as ours, whichever owner the API names."""
        self._nominated[uid] = node

    def _with_our_nomination(self, pod: PodView) -> PodView:
        if pod.nominated_node and self._nominated.get(pod.uid) == pod.nominated_node:
            return replace(pod, nomination_ours=True)
        return pod

    def _remove(self, key: PodKey) -> PodView | None:
        old = self.pending.pop(key, None) or self.bound.pop(key, None)
        self.judged.pop(key, None)
        if old is not None and old.node and old.gpu:
            on_node = self.gpu_pods[old.node]
            del on_node[key]
            if not on_node:
                del self.gpu_pods[old.node]
        self._far_reaching.discard(key)
        return old

    def _ended(self, old: PodView) -> PodChange:
        self._nominated.pop(old.uid, None)
        self._preempting.pop(old.uid, None)
        self._came_at.pop(old.uid, None)
        self._served_since.pop(old.uid, None)
        if old.gang and old.node and old.gpu and not old.deleting:
            self._finished_gangs.add((old.namespace, old.gang))
        done = self._end_demand(old.uid)
        return PodChange(done=done, released=old.node or self._reservations.pop(old.uid, "") or preempts_on(old))

    def _changed(self, old: PodView | None, new: PodView) -> PodChange:
        if new.node:
            return self._runs(old, new) if old is not None and old.node else self._bound(old, new)
        if old is not None and same_request(old, new):
            return PodChange()
        demand = self._demand(new)
        if demand:
            return PodChange(demand=demand)
        change = self._without_demand(new.uid)
        before, after = preempts_on(old) if old is not None else "", preempts_on(new)
        preempting = "" if before == after else before or self._if_counted(after)
        return replace(change, released=change.released or preempting)

    def _without_demand(self, uid: str) -> PodChange:
        """The pod needs no planning, or none any more: what was reserved for it is for others."""
        done = self._end_demand(uid)
        return PodChange(done=done, released=self._reservations.pop(uid, "") if done else "")

    def _runs(self, old: PodView, new: PodView) -> PodChange:
        """A bound pod changed: other resources are free, or the constraints of others see another pod."""
        other = old.requests != new.requests or (self.needs_all_nodes() and counts_differently(old, new))
        return PodChange(released=new.node if other else "")

    def _bound(self, old: PodView | None, new: PodView) -> PodChange:
        """A pod got its node: a place reserved for it elsewhere is free, here it may have taken that of another pod.

        And the constraints of others see one pod more.
        """
        done = self._end_demand(new.uid)
        self._served_since.pop(new.uid, None)
        reserved = (self._reservations.pop(new.uid, ""), preempts_on(old) if old is not None else "")
        elsewhere = next((node for node in reserved if node not in ("", new.node)), "")
        as_planned = new.node in reserved and not self.needs_all_nodes()
        return PodChange(
            done=done,
            released=elsewhere or ("" if as_planned else self._if_counted(new.node)),
            bound=new if old is not None else None,
            came_at=self._came_at.pop(new.uid, self._now),
        )

    def _if_counted(self, node: str) -> str:
        """The node, if one pod more there counts: the last pass placed pods there, or constraints count pods."""
        return node if node in self._reserved_nodes or self.needs_all_nodes() else ""

    def _demand(self, pod: PodView) -> str:
        if not wants_planning(pod, self.judged.get(pod.key)):
            return ""
        self.demands.setdefault(pod.uid, self._now)
        if pod.affinity or pod.anti_affinity or any(constraint.hard for constraint in pod.spread):
            self._constrained.add(pod.uid)
        return pod.uid

    def _end_demand(self, uid: str) -> str:
        if uid not in self.demands:
            return ""
        del self.demands[uid]
        self._constrained.discard(uid)
        return uid
