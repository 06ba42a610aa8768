"""Watches what filters read besides pods and nodes, from the moment that a pod needs it.

Takes observed pods and returns a SchedulingContext for the snapshot: namespaces for affinity terms that select them;
claims, volumes and storage classes for pods with volumes; services and workloads where the scheduler's profile
has default spread constraints; device classes for pods that request a GPU, PodGroups for those of a gang. With the
first plan it watches what DRA serves: DeviceClasses, and the ResourceSlices of NVIDIA's driver, by node. A kind that
is not listed yet, or that the controller may not list, is None there, which means unknown; planning never waits for it.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import chain
from typing import Any, TypeAlias

from kubernetes.client import ApiClient

from controller.api.pod_groups import COSCHEDULING, KUBERNETES, VOLCANO, read_pod_group
from controller.api.reading import Unreadable
from controller.api.storage import (
    DRA_DRIVER,
    read_claim,
    read_device_class,
    read_namespace,
    read_service,
    read_slice,
    read_storage_class,
    read_volume,
    read_workload,
)
from controller.model.scheduling import DEFAULT_PROFILE, NO_CONTEXT, FilterProfile, SchedulerProfiles, SchedulingContext
from controller.model.views import PodView
from kube.reflector import Key, Reflector


class Kind(Enum):
    """What can be watched, with its path and its reader."""

    NAMESPACES = ("/api/v1/namespaces", read_namespace)
    CLAIMS = ("/api/v1/persistentvolumeclaims", read_claim)
    VOLUMES = ("/api/v1/persistentvolumes", read_volume)
    STORAGE_CLASSES = ("/apis/storage.k8s.io/v1/storageclasses", read_storage_class)
    SERVICES = ("/api/v1/services", read_service)
    REPLICATION_CONTROLLERS = ("/api/v1/replicationcontrollers", read_workload)
    REPLICA_SETS = ("/apis/apps/v1/replicasets", read_workload)
    STATEFUL_SETS = ("/apis/apps/v1/statefulsets", read_workload)
    DEVICE_CLASSES = ("/apis/resource.k8s.io/v1/deviceclasses", read_device_class)
    RESOURCE_SLICES = ("/apis/resource.k8s.io/v1/resourceslices", read_slice)
    POD_GROUPS_1_36 = (f"/apis/{KUBERNETES}/v1alpha2/podgroups", read_pod_group)
    POD_GROUPS_1_37 = (f"/apis/{KUBERNETES}/v1beta1/podgroups", read_pod_group)
    COSCHEDULED = (f"/apis/{COSCHEDULING}/v1alpha1/podgroups", read_pod_group)
    OF_VOLCANO = (f"/apis/{VOLCANO}/v1beta1/podgroups", read_pod_group)


OF_DRA = (Kind.DEVICE_CLASSES, Kind.RESOURCE_SLICES)
"""By which DRA may give away GPUs of a node with a plan."""
OF_VOLUMES = (Kind.CLAIMS, Kind.VOLUMES, Kind.STORAGE_CLASSES)
WORKLOADS: Mapping[str, Kind] = {
    "ReplicationController": Kind.REPLICATION_CONTROLLERS,
    "ReplicaSet": Kind.REPLICA_SETS,
    "StatefulSet": Kind.STATEFUL_SETS,
}


POD_GROUPS: Mapping[str, tuple[Kind, ...]] = {
    KUBERNETES: (Kind.POD_GROUPS_1_36, Kind.POD_GROUPS_1_37),
    COSCHEDULING: (Kind.COSCHEDULED,),
    VOLCANO: (Kind.OF_VOLCANO,),
}
"""By API group, the versions that may be served: one that is not served stays unlisted."""


def needed_for(pod: PodView, profile: FilterProfile) -> set[Kind]:
    """What the filters read for this pod, or because of it for others."""
    needed: set[Kind] = set()
    terms = pod.anti_affinity if pod.node else (*pod.affinity, *pod.anti_affinity)
    if any(term.namespace_selector is not None and term.namespace_selector.requirements for term in terms):
        needed.add(Kind.NAMESPACES)
    if pod.node or not (pod.gpu or pod.misnamed):
        return needed
    needed.add(Kind.DEVICE_CLASSES)
    if not pod.gpu:
        return needed
    needed.update(POD_GROUPS.get(pod.gang_api, ()))
    if pod.volumes:
        needed.update(OF_VOLUMES)
    if profile.default_spread and not pod.spread:
        needed.update((Kind.SERVICES, *WORKLOADS.values()))
    return needed


class FixedInformers:
    """Watches nothing: for what is read from files, and for tests."""

    changed = listing = False

    def __init__(self, context: SchedulingContext = NO_CONTEXT) -> None:
        self._context = context

    def require(self, pod: PodView) -> None:
        """Nothing more is known."""

    def context(self) -> SchedulingContext:
        return self._context

    def require_dra(self) -> None:
        """Nothing more is known."""

    def dra_resources(self) -> frozenset[str]:
        return self._context.dra_resources

    def dra_lists(self, node: str) -> bool | None:
        """That is not known."""

    def take_changes(self) -> frozenset[str]:
        return frozenset()


class SchedulingInformers:
    """Every method may be called from any thread."""

    def __init__(self, api: ApiClient, profiles: SchedulerProfiles, *, awake: threading.Event) -> None:
        """`awake` is set when something has changed."""
        self._api = api
        self._profiles = profiles
        self._awake = awake
        self._changes: set[str] = set()
        self._lock = threading.Lock()
        self._watches: dict[Kind, Reflector[Any]] = {}
        self._slices: Counter[object] = Counter()
        """Of NVIDIA's DRA driver, by node: each node is asked about every minute, and a driver may have many slices."""
        self._stopped = False

    def require(self, pod: PodView) -> None:
        """Watch what this pod needs from now on. The common case, a pod that needs nothing, costs nothing."""
        self._require(needed_for(pod, self._profiles.get(pod.scheduler_name, DEFAULT_PROFILE)))

    def require_dra(self) -> None:
        """Watch from now on what DRA serves."""
        self._require({*OF_DRA})

    def _require(self, needed: set[Kind]) -> None:
        if needed <= self._watches.keys():
            return
        with self._lock:
            for kind in sorted(needed - self._watches.keys(), key=lambda kind: kind.value[0]):
                if not self._stopped:
                    self._watches[kind] = watch = self._watch(kind)
                    watch.start()

    def context(self) -> SchedulingContext:
        """Everything that is known now."""
        return context_from(self._items)

    def dra_resources(self) -> frozenset[str]:
        """Resources that a DeviceClass maps, as in the context."""
        return _mapped(self._items)

    def dra_lists(self, node: str) -> bool | None:
        """Whether NVIDIA's DRA driver lists GPUs of it; None: that, or what DeviceClasses map, is not known yet."""
        watches = [self._watches.get(kind) for kind in OF_DRA]
        return self._slices[node] > 0 if all(watch and watch.synced.is_set() for watch in watches) else None

    def take_changes(self) -> frozenset[str]:
        """What has changed since this was called last, by path."""
        with self._lock:
            taken, self._changes = frozenset(self._changes), set()
        return taken

    @property
    def changed(self) -> bool:
        """Whether there is such a change."""
        return bool(self._changes)

    @property
    def listing(self) -> bool:
        """A watch has begun of which nothing is known yet, not even that it fails."""
        with self._lock:
            watches = list(self._watches.values())
        return any(watch.served and not (watch.synced.is_set() or watch.last_error) for watch in watches)

    def watch_errors(self) -> dict[str, str]:
        """The last error of each watch, by path; without kinds that this API server does not serve."""
        with self._lock:
            return {watch.path: watch.last_error for watch in self._watches.values() if watch.served}

    def stop(self) -> None:
        """End all watches."""
        with self._lock:
            self._stopped = True
            watches = list(self._watches.values())
        for watch in watches:
            watch.stop()

    def _watch(self, kind: Kind) -> Reflector[Any]:
        path, read = kind.value

        def on_change(_key: Key, old: object, new: object) -> None:
            if kind is Kind.RESOURCE_SLICES:
                self._slices.update([new])
                self._slices.subtract([old])
                return  # nothing is planned by them
            with self._lock:
                self._changes.add(path)
            self._awake.set()

        def project(raw: dict[str, Any]) -> Any:
            found = read(raw)
            return None if isinstance(found, Unreadable) else found

        params = {"fieldSelector": f"spec.driver={DRA_DRIVER}"} if kind is Kind.RESOURCE_SLICES else None
        return Reflector(self._api, path, project=project, on_change=on_change, params=params, optional=True)

    def _items(self, kind: Kind) -> dict[Key, Any] | None:
        watch = self._watches.get(kind)
        return dict(watch.items()) if watch is not None and watch.synced.is_set() else None


Informers: TypeAlias = FixedInformers | SchedulingInformers


def context_from(items: Callable[[Kind], Mapping[Key, Any] | None]) -> SchedulingContext:
    """What filters read, from what is known of each kind; None where nothing is."""
    workloads = {name: items(kind) for name, kind in WORKLOADS.items()}
    known = all(found is not None for found in workloads.values())
    return SchedulingContext(
        namespaces=_by_name(items(Kind.NAMESPACES)),
        claims=items(Kind.CLAIMS),
        volumes=_by_name(items(Kind.VOLUMES)),
        storage_classes=_by_name(items(Kind.STORAGE_CLASSES)),
        services=items(Kind.SERVICES),
        workloads={(name, *key): one for name, found in workloads.items() for key, one in (found or {}).items()}
        if known
        else None,
        pod_groups={
            (group, *key): least
            for group, kinds in POD_GROUPS.items()
            for kind in kinds
            for key, least in (items(kind) or {}).items()
        },
        dra_resources=_mapped(items),
    )


def _mapped(items: Callable[[Kind], Mapping[Key, Any] | None]) -> frozenset[str]:
    return frozenset(chain.from_iterable((items(Kind.DEVICE_CLASSES) or {}).values()))


def _by_name(found: Mapping[Key, Any] | None) -> dict[str, Any] | None:
    return None if found is None else {name: one for (_, name), one in found.items()}
