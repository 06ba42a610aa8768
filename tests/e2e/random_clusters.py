"""Small random clusters for the scheduler, from a seed: nodes, running pods, pods to schedule, claims and volumes.

Takes a number, returns raw objects as a person would create them, the same for the same number everywhere. Volumes
are there before the claims or never, so that nothing needs a storage system.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.e2e.random_pods import HOSTNAME, NAMESPACES, OVERHEAD_CLASS, SLICES, ZONE, ZONES, Json, PodMaker

LOCAL, IMMEDIATE, NOWHERE = "local", "immediate", "nowhere"
_TAINTS = (
    {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "web", "effect": "NoExecute"},
    {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
    {"key": "soft", "value": "yes", "effect": "PreferNoSchedule"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomCluster:
    """What to create, in this order; `finished` and `ending` name running pods that are done, or being deleted."""

    volumes: Sequence[Json]
    claims: Sequence[Json]
    nodes: Sequence[Json]
    running: Sequence[Json]
    finished: frozenset[str]
    ending: frozenset[str]
    pending: Sequence[Json]


def shared_objects() -> list[tuple[str, Json]]:
    """Collections and objects that all clusters share."""
    namespaces: list[Json] = [
        {"metadata": {"name": name, "labels": dict(labels)}} for name, labels in NAMESPACES.items()
    ]
    classes: list[Json] = [
        {"metadata": {"name": LOCAL}, "volumeBindingMode": "WaitForFirstConsumer"},
        {"metadata": {"name": IMMEDIATE}, "volumeBindingMode": "Immediate"},
        {
            "metadata": {"name": NOWHERE},
            "volumeBindingMode": "WaitForFirstConsumer",
            "provisioner": "example.dev/storage",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["moon"]}]}],
        },
    ]
    heavy: Json = {
        "metadata": {"name": OVERHEAD_CLASS},
        "handler": "heavy",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "300Mi"}},
    }
    return [
        *(("/api/v1/namespaces", each) for each in namespaces),
        *(
            ("/apis/storage.k8s.io/v1/storageclasses", {"provisioner": "kubernetes.io/no-provisioner", **each})
            for each in classes
        ),
        ("/apis/node.k8s.io/v1/runtimeclasses", heavy),
    ]


def random_cluster(number: int, *, pods: int = 10) -> RandomCluster:
    """The cluster of this number; `pods` are to be scheduled one after the other."""
    return _Maker(number).cluster(pods)


class _Maker(PodMaker):
    def cluster(self, pods: int) -> RandomCluster:
        self._names = [f"{self._prefix}-node-{i}" for i in range(self._rng.randint(4, 8))]
        nodes = [self._node(name) for name in self._names]
        volumes, claims = self._storage() if self._chance(0.4) else ([], [])
        self._claims = [claim["metadata"]["name"] for claim in claims]
        running = [self._pod(f"running-{i}", self._pick(self._names)) for i in range(self._rng.randint(4, 14))]
        names = [pod["metadata"]["name"] for pod in running]
        return RandomCluster(
            volumes=volumes,
            claims=claims,
            nodes=nodes,
            running=running,
            finished=frozenset(name for name in names if self._chance(0.06)),
            ending=frozenset(name for name in names if self._chance(0.06)),
            pending=[self._pod(f"pod-{i}") for i in range(pods)],
        )

    def _node(self, name: str) -> Json:
        labels = {HOSTNAME: name}
        if self._chance(0.85):
            labels[ZONE] = self._pick(ZONES)
        if self._chance(0.7):
            labels["disk"] = self._pick(("ssd", "hdd"))
        if self._chance(0.5):
            labels["rank"] = str(self._rng.randint(0, 9))
        amounts = {
            "cpu": "64" if self._roomy else self._pick(("2", "3500m", "4")),
            "memory": "256Gi" if self._roomy else self._pick(("4Gi", "7900000Ki", "16Gi")),
            "ephemeral-storage": "1Ti" if self._roomy else self._pick(("5Gi", "20Gi")),
            "pods": self._pick(("110", "110", "110", "3", "5")),
            **{resource: str(self._rng.randint(0, 4)) for resource in SLICES if self._chance(0.7)},
        }
        spec: Json = {"unschedulable": True} if self._chance(0.02 if self._roomy else 0.08) else {}
        if self._chance(0.1 if self._roomy else 0.3):
            spec["taints"] = self._some(_TAINTS, 2)
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}

    def _storage(self) -> tuple[list[Json], list[Json]]:
        """Bound claims, one that one pod only may use, and claims that wait, for a volume or in vain."""
        volumes, claims = [], []
        for i in range(3):
            name = f"{self._prefix}-bound-{i}"
            mode = "ReadWriteOncePod" if i == 0 else "ReadWriteMany"
            volumes.append(self._volume(name, "", mode))
            volumes[-1]["spec"]["claimRef"] = {"namespace": "red", "name": name}
            claims.append(self._claim(name, "", mode, volumeName=name))
        volumes += [self._volume(f"{self._prefix}-free-{i}", LOCAL) for i in range(self._rng.randint(0, 3))]
        claims += [self._claim(f"{self._prefix}-local-{i}", LOCAL) for i in range(2)]
        claims += [self._claim(f"{self._prefix}-{name}", name) for name in (IMMEDIATE, NOWHERE) if self._chance(0.5)]
        return volumes, claims

    def _volume(self, name: str, storage_class: str, mode: str = "ReadWriteMany") -> Json:
        metadata: Json = {"name": name}
        if self._chance(0.3):
            metadata["labels"] = {ZONE: self._pick(("a", "b", "a__b"))}
        expression = self._pick(
            (
                {"key": HOSTNAME, "operator": "In", "values": self._some(self._names, 3)},
                {"key": ZONE, "operator": "In", "values": self._some(ZONES, 2)},
            )
        )
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": [mode],
            "storageClassName": storage_class,
            "hostPath": {"path": "/none"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        }
        return {"metadata": metadata, "spec": spec}

    def _claim(self, name: str, storage_class: str, mode: str = "ReadWriteMany", **more: str) -> Json:
        resources = {"requests": {"storage": "1Gi"}}
        spec = {"accessModes": [mode], "storageClassName": storage_class, "resources": resources, **more}
        return {"metadata": {"name": name, "namespace": "red"}, "spec": spec}
