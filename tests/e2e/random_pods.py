"""Random pods for the scheduler, from a seed: every rule of a pod's spec that a filter reads.

Takes a seed and the names of nodes and claims, returns raw pods as a person would create them. The shares are such
that about half of the pods fit somewhere; where resources are plenty, affinity decides. All have one
priority, so that nothing is preempted.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
SLICES = ("nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu-10gb")
NAMESPACES: Mapping[str, Mapping[str, str]] = {
    "red": {"team": "one"},
    "blue": {"team": "one", "stage": "test"},
    "green": {"team": "two"},
}
OVERHEAD_CLASS = "heavy"
_PORTS = {"main": (8080, 8081), "sidecar": (8082,)}
ZONES = ("a", "b", "c")
_APPS = ("web", "db", "job")
_TOLERATIONS = (
    {"key": "dedicated", "operator": "Exists"},
    {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
    {"key": "dedicated", "operator": "Equal", "value": "web"},
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    {"operator": "Exists"},
)


class PodMaker:
    """Draws from one generator, so that the order of calls matters."""

    def __init__(self, number: int) -> None:
        self._rng = random.Random(number)
        self._prefix = f"c{number}"
        self._roomy = self._chance(0.5)
        """Resources are plenty there and few nodes are kept from pods, so that pods decide where pods go."""
        self._names: list[str] = []
        self._claims: list[str] = []

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _pick(self, options: Sequence[Any]) -> Any:
        return self._rng.choice(options)

    def _some(self, options: Sequence[Any], most: int) -> list[Any]:
        return self._rng.sample(list(options), self._rng.randint(1, min(most, len(options))))

    def _pod(self, name: str, node: str = "") -> Json:
        labels = {"app": self._pick(_APPS), "version": self._pick(("1", "2"))} if self._chance(0.9) else {}
        metadata = {
            "name": f"{self._prefix}-{name}",
            "namespace": self._pick(("red", "red", "blue", "green")),
            "labels": labels,
        }
        spec: Json = {"containers": [self._container("main")], "terminationGracePeriodSeconds": 3600}
        if node:
            spec["nodeName"] = node
        self._add_containers(spec)
        if self._chance(0.4):
            spec["tolerations"] = self._some(_TOLERATIONS, 2)
        if not node and self._chance(0.05 if self._roomy else 0.2):
            spec["nodeSelector"] = {self._pick(("disk", "disk", "none")): self._pick(("ssd", "hdd"))}
        affinity = self._affinity(bool(node))
        if affinity:
            spec["affinity"] = affinity
        if not node and self._chance(0.6 if self._roomy else 0.2):
            spec["topologySpreadConstraints"] = self._spread()
        if not node and self._claims and metadata["namespace"] == "red" and self._chance(0.7):
            spec["volumes"] = [
                {"name": f"data-{i}", "persistentVolumeClaim": {"claimName": claim}}
                for i, claim in enumerate(self._some([*self._claims, "missing"], 2))
            ]
        return {"metadata": metadata, "spec": spec}

    def _add_containers(self, spec: Json) -> None:
        if self._chance(0.25):
            spec["containers"].append(self._container("second"))
        init = []
        if self._chance(0.2):
            init.append({**self._container("sidecar"), "restartPolicy": "Always"})
        if self._chance(0.2):
            init.append(self._container("init", most=3))
        if init:
            self._rng.shuffle(init)
            spec["initContainers"] = init
        if self._chance(0.15):
            spec["runtimeClassName"] = OVERHEAD_CLASS
        if self._chance(0.1):
            spec["hostNetwork"] = True
        if not init and len(spec["containers"]) == 1 and self._chance(0.15):  # never less than its containers request
            spec["resources"] = {"requests": {"cpu": "3", "memory": "4Gi"}}

    def _container(self, name: str, most: int = 1) -> Json:
        requests: dict[str, str] = {}
        limits: dict[str, str] = {}
        if self._chance(0.7):
            requests["cpu"] = self._pick(("0", "100m", "300m", "0.7005", "1")) if most == 1 else str(most)
        if self._chance(0.5):
            requests["memory"] = self._pick(("100Mi", "1Gi", "1500M", "1.5Gi"))
        if self._chance(0.15):
            requests["ephemeral-storage"] = self._pick(("1Gi", "4Gi"))
        if self._chance(0.1):
            limits["memory"] = "2Gi"  # replaces the request, where there is none
        if self._chance(0.3):
            limits[self._pick(SLICES)] = str(self._rng.randint(0, 2))
        container: Json = {"name": name, "image": "none", "resources": {"requests": requests, "limits": limits}}
        if name in _PORTS and self._chance(0.3 if self._roomy else 0.15):
            container["ports"] = [self._port(self._pick(_PORTS[name]))]
        return container

    def _port(self, number: int) -> Json:
        port: Json = {"containerPort": number, "hostPort": number, "protocol": self._pick(("TCP", "TCP", "UDP"))}
        if self._chance(0.4):
            port["hostIP"] = self._pick(("127.0.0.1", "10.0.0.7"))
        return port

    def _affinity(self, runs: bool) -> Json:
        affinity: Json = {}
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        if not runs and self._chance(0.1 if self._roomy else 0.3):
            terms = [self._node_term() for _ in range(self._rng.randint(1, 2))]
            affinity["nodeAffinity"] = {required: {"nodeSelectorTerms": terms}}
        if not runs and self._chance(0.3 if self._roomy else 0.2):
            affinity["podAffinity"] = {required: [self._pod_term() for _ in range(self._pick((1, 1, 2)))]}
        if self._chance(0.3 if self._roomy else 0.15):
            affinity["podAntiAffinity"] = {required: [self._pod_term()]}
        return affinity

    def _node_term(self) -> Json:
        if self._chance(0.2):
            operator = self._pick(("In", "NotIn"))
            return {
                "matchFields": [{"key": "metadata.name", "operator": operator, "values": [self._pick(self._names)]}]
            }
        options = (
            {"key": ZONE, "operator": "In", "values": self._some(ZONES, 2)},
            {"key": ZONE, "operator": "NotIn", "values": self._some(ZONES, 2)},
            {"key": "disk", "operator": self._pick(("Exists", "DoesNotExist"))},
            {"key": "rank", "operator": self._pick(("Gt", "Lt")), "values": [str(self._rng.randint(0, 6))]},
        )
        return {"matchExpressions": self._some(options, 2)}

    def _pod_term(self) -> Json:
        term: Json = {"topologyKey": self._pick((ZONE, ZONE, HOSTNAME, "disk"))}
        kind = self._rng.random()
        if kind < 0.25:
            term["namespaces"] = self._some(tuple(NAMESPACES), 2)
        elif kind < 0.5:
            term["namespaceSelector"] = self._pick(({}, {"matchLabels": {"team": "one"}}))
        # Selectors without a label stay in the pod's namespace: they would keep off pods that are no test's.
        term["labelSelector"] = self._selector(only_present="namespaceSelector" in term)
        if self._chance(0.15):
            term[self._pick(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
        return term

    def _selector(self, *, only_present: bool = False) -> Json:
        if only_present or self._chance(0.7):
            return {"matchLabels": {"app": self._pick(_APPS)}}
        operator = self._pick(("In", "NotIn"))
        return {"matchExpressions": [{"key": "app", "operator": operator, "values": self._some(_APPS, 2)}]}

    def _spread(self) -> list[Json]:
        constraints = []
        for key in self._some((ZONE, HOSTNAME, "disk"), 2):
            constraint: Json = {
                "topologyKey": key,
                "maxSkew": self._pick((1, 1, 2)),
                "whenUnsatisfiable": self._pick(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
                "labelSelector": self._selector(),
            }
            if constraint["whenUnsatisfiable"] == "DoNotSchedule" and self._chance(0.2):
                constraint["minDomains"] = self._rng.randint(1, 4)
            if self._chance(0.2):
                constraint["matchLabelKeys"] = ["version"]
            for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
                if self._chance(0.3):
                    constraint[policy] = self._pick(("Honor", "Ignore"))
            constraints.append(constraint)
        return constraints
