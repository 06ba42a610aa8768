"""Nominates planned pods to their nodes, so that the scheduler gives each the partitions that were made for it.

Takes the reservations of the last pass and the plans' statuses and patches `status.nominatedNodeName`: as soon as a pod
has a reservation while the node's GPUs are being changed, and later as long as the pod waits and its partitions are
there (Free, or Pending: registered with the kubelet, not yet schedulable). Without a nomination the scheduler gives the
partitions to the pod that it tries first. Schedulers clear the nomination at the pod's next failed attempt, such as
when another node grows first, so it is written again at once: many partitions appear at one moment, and a pod without a
nomination then loses its own. Never overrules a nomination by others: that is a scheduler preempting.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from controller.actions.environment import Environment
from controller.actions.metrics import ErrorStage
from controller.model.demand import is_device, queue_order
from controller.model.views import PlanView, PodView
from crds.v1alpha1 import paths
from crds.v1alpha1.names import CONTROLLER_MANAGER, PartitionState
from kube import apply, errors
from kube.concurrency import SENDING_SECONDS, at_once
from kube.retry import RetryGate

log = logging.getLogger(__name__)

RENOMINATE_SECONDS = 0.2
"""Between two nominations of one pod. A scheduler clears one at most at each attempt, and those lie a second apart."""
BOUND = "already bound"
"""In the refusal of API servers from 1.35 on; older ones take a nomination of a bound pod."""
ADVERTISED = (PartitionState.FREE, PartitionState.PENDING)


class Nominator:
    """Run often: it writes only where a nomination is missing, and what it cannot send in time waits for the next."""

    def __init__(self, environment: Environment, *, enabled: bool) -> None:
        self._environment = environment
        self._api, self._state, self._clock = environment.api, environment.state, environment.clock
        self._enabled = enabled
        self._retries: RetryGate[str] = RetryGate(clock=self._clock)
        self._settled_version = -1
        """Of the state, when nothing was left to nominate."""

    def run(self) -> None:
        """Nominate every pod with a reservation whose partitions are there."""
        lacking = self.lacking()
        if not lacking:
            return
        until = self._clock() + SENDING_SECONDS
        due = [one for one in lacking if self._retries.may_send(one[0].uid)]
        at_once(lambda one: self._nominate(*one, until=until), due)

    def lacking(self) -> list[tuple[PodView, str]]:
        """Pods to nominate now, and where to."""
        version = self._state.cluster.version  # first: what changes meanwhile makes the next turn check again
        if not self._enabled or version == self._settled_version:
            return []
        reservations = self._state.cluster.reservations()
        lacking = self._lacking(reservations) if reservations else []
        if not lacking:
            self._settled_version = version
        return lacking

    def _lacking(self, reservations: Mapping[str, str]) -> list[tuple[PodView, str]]:
        """Other pods may take partitions that are there, so theirs come first."""
        plans = self._state.cluster.plan_views()
        ready: dict[str, tuple[PodView, str]] = {}
        early: dict[str, tuple[PodView, str]] = {}
        for node, pods in sorted(_by_node(self._state.cluster.pending(), reservations).items()):
            if node in plans:
                found = due(node, plans[node], pods, self._state.cluster.gpu_pods(node), reservations)
                ready.update((pod.uid, (pod, node)) for pod in found)
                early.update((pod.uid, (pod, node)) for pod in coming(node, plans[node], pods, reservations))
        return list({**ready, **early}.values())

    def _nominate(self, pod: PodView, node: str, *, until: float) -> None:
        # Many come before this one, and schedulers do not wait: check again.
        known = self._state.cluster.pending_pod(pod.key)
        if known != pod or self._clock() >= until or not self._environment.leading():
            return
        self._state.nominate(pod.uid, node)
        body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}}
        try:
            apply.merge_patch(self._api, paths.pod_status(pod.namespace, pod.name), body, manager=CONTROLLER_MANAGER)
        except errors.ApiError as error:
            # A pod that is gone or bound needs no nomination: the watch will bring it.
            needless = isinstance(error, errors.NotFound) or BOUND in error.message
            if self._retries.failed(pod.uid, error) and not needless:
                self._environment.metrics.errors.labels(stage=ErrorStage.NOMINATE.value).inc()
                log.warning("pod %s could not be nominated to %s: %s", pod.title, node, error.message)
            return
        self._retries.succeeded(pod.uid, pause_seconds=RENOMINATE_SECONDS)
        self._environment.metrics.nominations.inc()
        log.debug("pod %s nominated to %s", pod.title, node)


def due(
    node: str, plan: PlanView, pending: Sequence[PodView], holders: Iterable[PodView], reservations: Mapping[str, str]
) -> list[PodView]:
    """Pods reserved on this node that lack a nomination and have their partitions there, in the scheduler's order.

    `pending` may be only the pods with a reservation or nomination for this node; `holders` are bound to it.
    """
    waiting = [pod for pod in pending if _lacks_nomination(pod, node, reservations)]
    free = _advertised(plan) if waiting else Counter()
    if not free:
        return []
    free.subtract(_taken_unseen(plan, holders))
    for pod in pending:
        if pod.nominated_node == node:
            free.subtract(dict(_partitions(pod)))
    found = []
    for pod in sorted(waiting, key=queue_order):
        requested = _partitions(pod)
        if all(free[resource] >= amount for resource, amount in requested):
            free.subtract(dict(requested))
            found.append(pod)
    return found


def _lacks_nomination(pod: PodView, node: str, reservations: Mapping[str, str]) -> bool:
    foreign = bool(pod.nominated_node) and not pod.nomination_ours
    return reservations.get(pod.uid) == node and pod.nominated_node != node and not foreign and not pod.deleting


def coming(node: str, plan: PlanView, pending: Iterable[PodView], reservations: Mapping[str, str]) -> list[PodView]:
    """Pods with a reservation on this node that the scheduler tried in vain, while its GPUs are being cut.

    A pod that was not tried yet may be bound without us, and elsewhere.
    """
    if not any(gpu.under_way for gpu in plan.gpus):
        return []
    return [
        pod
        for pod in pending
        if reservations.get(pod.uid) == node and pod.unschedulable and not pod.nominated_node and not pod.deleting
    ]


def _by_node(pending: Iterable[PodView], reservations: Mapping[str, str]) -> dict[str, list[PodView]]:
    """Pending pods with a reservation or nomination, for each node that has a reservation."""
    found: dict[str, list[PodView]] = {node: [] for node in reservations.values()}
    for pod in pending:
        for node in {reservations.get(pod.uid, ""), pod.nominated_node} & found.keys():
            found[node].append(pod)
    return found


def _advertised(plan: PlanView) -> Counter[str]:
    return Counter(part.resource for gpu in plan.gpus for part in gpu.partitions if part.state in ADVERTISED)


def _taken_unseen(plan: PlanView, holders: Iterable[PodView]) -> Counter[str]:
    """What bound pods took of the advertised partitions although the status does not show it yet."""
    shown = Counter((p.resource, p.pod) for gpu in plan.gpus for p in gpu.partitions if p.state not in ADVERTISED)
    unseen: Counter[str] = Counter()
    for pod in holders:
        for resource, amount in _partitions(pod):
            unseen[resource] += max(0, amount - shown[resource, pod.title])
    return unseen


def _partitions(pod: PodView) -> list[tuple[str, int]]:
    return [(resource, amount) for resource, amount in pod.gpu if is_device(resource)]
