"""Judges the request of a pending pod: what it demands of our GPUs, or why it is not served, or that it is not ours.

Takes a pod and what decides besides it: schedulers, DeviceClasses, the names of resources that nodes have. The cache
judges each pod once, as it is observed; a snapshot arranges what was judged in the scheduler's queue order (priority,
then creation) and adds what holds at this moment. Whether anything fits is not decided here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from controller.model.demand import Demand, DemandSet, demand_of, kind_of, queue_order
from controller.model.misnamed import about_misnamed
from controller.model.reasons import UnplacedReason
from controller.model.results import Unplaced
from controller.model.views import DEFAULT_SCHEDULERS, PodView
from crds.v1alpha1.names import LABEL_ACK
from partitioning.resources import WHOLE, AckRequest, NoMemoryRequest, SharedRequest, WholeRequest

NO_BIND_FAILURES: Mapping[str, str] = MappingProxyType({})

DemandOrRefusal = Demand | Unplaced | Exception | None
"""What a pod demands, or why its request is not served. None: nothing that is ours to provide or to explain.

An error that its data raised is kept here, so that it costs no other pod anything: planning sets the pod aside.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What decides, besides the pod, whether its request is served."""

    scheduler_names: frozenset[str] = DEFAULT_SCHEDULERS
    dra_resources: frozenset[str] = frozenset()
    """Mapped by a DeviceClass: DRA serves whole GPUs of such a name, and partitions where no node advertises them."""
    advertised: frozenset[str] = frozenset()
    """Resources of nodes: a name that one of them has is right, whatever its form."""
    mig_names: frozenset[str] = frozenset()
    """Of MIG instances that its GPUs can have; none: not known."""
    most_units: int = 0
    """GiB of the GPU that has most of ACK's resource; 0: not known."""


def judge(pod: PodView, serving: Serving) -> DemandOrRefusal:
    """Whether it is served at this moment is decided when it is planned: see `arrange`."""
    try:
        return _judge(pod, serving)
    except Exception as error:  # noqa: BLE001  # named in the result of each pass
        return error


def _judge(pod: PodView, serving: Serving) -> Demand | Unplaced | None:
    if pod.deleting:
        return None
    misnamed = sorted({*pod.misnamed} - serving.advertised - serving.dra_resources) if pod.misnamed else []
    if misnamed and pod.scheduler_name in serving.scheduler_names:
        return _not_served(pod, about_misnamed(misnamed[0], serving.mig_names))
    if not pod.gpu or _is_others_business(pod, serving):
        return None
    refusal = _refusal(pod, serving)
    if refusal is not None:
        return refusal
    demand = demand_of(pod)
    return demand if demand.wants else None


def wants_planning(pod: PodView, judged: DemandOrRefusal) -> bool:
    """Planning serves this pending pod or gives a reason; a pod may complete its gang, tried or not."""
    if isinstance(judged, Demand):
        return judged.tried or bool(pod.gang) or _preempting(pod) is not None
    return judged is not None


def collect(
    pending: Iterable[PodView], serving: Serving, *, bind_failures: Mapping[str, str] = NO_BIND_FAILURES
) -> DemandSet:
    """Judge and arrange in one."""
    return arrange([(pod, judge(pod, serving)) for pod in pending], bind_failures)


def arrange(pending: Iterable[tuple[PodView, DemandOrRefusal]], bind_failures: Mapping[str, str]) -> DemandSet:
    """All that was judged of pending pods, and which of them the scheduler has tried.

    `bind_failures` are pods that were not bound where their partitions were, with that node: left alone now.
    """
    helpable: list[Demand] = []
    untried: list[Demand] = []
    refused: list[Unplaced] = []
    failed: dict[str, Exception] = {}
    queue = sorted(pending, key=lambda one: queue_order(one[0]))
    # A gang's other pods may be held back until all can start: they count as tried as well.
    waiting_gangs = {(pod.namespace, pod.gang) for pod, _ in queue if pod.gang and pod.unschedulable}
    for pod, judged in queue:
        found = judged
        if isinstance(judged, Demand):
            found = _preempting(pod) or _unbindable(pod, bind_failures) or judged
        if isinstance(found, Exception):
            failed[pod.uid] = found
        elif isinstance(found, Unplaced):
            refused.append(found)
        elif found is not None and found.tried:
            helpable.append(found)
        elif found is not None and (pod.namespace, pod.gang) in waiting_gangs:
            helpable.append(replace(found, tried=True))
        elif found is not None:
            untried.append(found)
    return DemandSet(helpable=tuple(helpable), untried=tuple(untried), refused=tuple(refused), failed=failed)


def _is_others_business(pod: PodView, serving: Serving) -> bool:
    """Whole GPUs are served by others as well: a pod of another scheduler, or of DRA, needs no explanation."""
    if not all(isinstance(kind_of(resource), WholeRequest) for resource, _ in pod.gpu):
        return False
    return pod.claims or WHOLE in serving.dra_resources or pod.scheduler_name not in serving.scheduler_names


def _refusal(pod: PodView, serving: Serving) -> Unplaced | None:
    """Why a pod that requests a share of a GPU is not planned for; None if it is."""
    kinds = [kind_of(resource) for resource, _ in pod.gpu]
    for (resource, amount), kind in zip(pod.gpu, kinds, strict=True):
        if isinstance(kind, SharedRequest) and resource not in serving.advertised:
            return _not_served(
                pod,
                f"No node has {resource}. Share a GPU by mps.replicas in the plan of its node, or request "
                "nvidia.com/gpu-<N>gb, an MPS slice of N GB.",
            )
        if isinstance(kind, AckRequest) and resource not in serving.advertised:
            gb = -(-amount * 2**30 // 10**9)
            return _not_served(
                pod,
                f"No node has {resource}. Label a node {LABEL_ACK}=mps alone, or request nvidia.com/gpu-{gb}gb: 1.",
            )
        if isinstance(kind, AckRequest) and pod.most_units > serving.most_units > 0:
            return _unplaced(
                pod,
                UnplacedReason.NEVER_FITS,
                f"A container requests {pod.most_units} of {resource}, and the largest GPU has {serving.most_units}: a "
                "container gets its memory of one GPU. Request less, or add a node with larger GPUs.",
            )
        if isinstance(kind, NoMemoryRequest):
            return _not_served(
                pod, f"{resource} is not served: a slice has at least 1 GB. Request nvidia.com/gpu-<N>gb."
            )
    if WHOLE in serving.dra_resources and any(resource == WHOLE for resource, _ in pod.gpu):
        return _not_served(pod, f"A DeviceClass maps {WHOLE}, so DRA serves it. Request partitions in another pod.")
    if pod.claims:
        return _not_served(
            pod, "The pod has resource claims, which DRA serves. Request the partition in resources.limits alone."
        )
    return _unusable(pod, serving) or _gated(pod)


def _unusable(pod: PodView, serving: Serving) -> Unplaced | None:
    """What the pod would get, it could not use."""
    if pod.mixed_container:
        kinds_of = " and ".join(pod.mixed_container)
        return _not_served(
            pod,
            f"A container can use an MPS slice and no other GPU resource, but one here requests {kinds_of}. "
            "Request one kind, or use several containers.",
        )
    if pod.most_mps_per_container > 1:
        return _not_served(
            pod,
            f"A container can use only one MPS slice, but one here requests {pod.most_mps_per_container}. "
            "Request one larger slice, or use several containers.",
        )
    if pod.overriding_container:
        return _not_served(
            pod,
            f"Container {pod.overriding_container} requests an MPS slice and sets NVIDIA_VISIBLE_DEVICES or "
            "CUDA_MPS_*, which hold the limits of the slice. Remove them from its env.",
        )
    if pod.scheduler_name not in serving.scheduler_names:
        return _not_served(
            pod,
            f"Its scheduler {pod.scheduler_name} is not in the controller's setting schedulerNames "
            f"({', '.join(sorted(serving.scheduler_names))}). Ask an administrator to add it.",
        )
    return None


def _gated(pod: PodView) -> Unplaced | None:
    if not pod.scheduling_gates:
        return None
    gates = ", ".join(pod.scheduling_gates)
    return _unplaced(pod, UnplacedReason.SCHEDULING_GATED, f"Waiting for its scheduling gates ({gates}) to be removed.")


def _preempting(pod: PodView) -> Unplaced | None:
    if not pod.nominated_node or pod.nomination_ours:
        return None
    return _unplaced(
        pod,
        UnplacedReason.PREEMPTING,
        f"Its scheduler has nominated node {pod.nominated_node} and evicts pods there, or is about to bind it. Wait.",
    )


def _unbindable(pod: PodView, bind_failures: Mapping[str, str]) -> Unplaced | None:
    node = bind_failures.get(pod.uid)
    if node is None:
        return None
    return _unplaced(
        pod,
        UnplacedReason.FILTERED_BY_SCHEDULER,
        f"Its partitions were ready twice, last on node {node}, but {pod.scheduler_name} did not bind it. The pod's "
        "PodScheduled condition names the filter that rejects it. It is planned again later.",
    )


def _not_served(pod: PodView, message: str) -> Unplaced:
    return _unplaced(pod, UnplacedReason.NOT_SERVED, message)


def _unplaced(pod: PodView, reason: UnplacedReason, message: str) -> Unplaced:
    return Unplaced(uid=pod.uid, key=pod.key, reason=reason, message=message)
