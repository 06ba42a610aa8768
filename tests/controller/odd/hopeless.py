"""Reasons why a pod can never run, each of which leaves all the rest of the pod as it is.

Takes a raw pod and changes it; `daemons` are the pods that run on every node, and never leave. A pod with one of these
reasons costs no other pod a place, whatever it requests, however long it waits and whatever its priority is.
"""

import random
from collections.abc import Callable, Iterable

from controller.model.scheduling import ClaimView, NodeSelectorTerm, Requirement, VolumeView
from tests.builders import objects
from tests.builders.objects import Json
from tests.controller.odd.pods import HOST, NAMESPACES, NOWHERE, REQUIRED

CPU_OF_DAEMON, CPU_OF_NODE = "100", 192
PORT = 9100

Reason = Callable[[random.Random, Json], None]


def daemons(nodes: Iterable[str]) -> list[Json]:
    return [_daemon(node) for node in nodes]


def _daemon(node: str) -> Json:
    ports = [{"containerPort": PORT, "hostPort": PORT}]
    main = objects.container("main", {"cpu": CPU_OF_DAEMON}, ports=ports)
    labels = {"app": "daemon"}
    return objects.pod(
        f"daemon-{node}", namespace="good", node=node, phase="Running", containers=[main], metadata={"labels": labels}
    )


CLAIMS = {
    (namespace, "far"): ClaimView(volume="far", bound=True, storage_class="disk", uid="far") for namespace in NAMESPACES
}
_AWAY = NodeSelectorTerm(labels=(Requirement(key="pool", operator="In", values=("none",)),))
VOLUMES = {"far": VolumeView(node_affinity=(_AWAY,), storage_class="disk")}


def _selected(rng: random.Random, raw: Json) -> None:
    raw["spec"]["nodeSelector"] = dict(NOWHERE)
    raw["metadata"].setdefault("labels", {})["nowhere"] = "yes"


def _term(labels: dict[str, str], key: str = HOST) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}, "namespaceSelector": {}}


def _among_pods(raw: Json, kind: str, term: Json) -> None:
    raw["spec"].setdefault("affinity", {}).setdefault(kind, {}).setdefault(REQUIRED, []).append(term)


def _near_none(rng: random.Random, raw: Json) -> None:
    """Or only those that run nowhere themselves."""
    _among_pods(raw, "podAffinity", _term(rng.choice(({"nothing-has-it": "yes"}, {"nowhere": "yes"}))))


def _away_from_daemons(rng: random.Random, raw: Json) -> None:
    _among_pods(raw, "podAntiAffinity", _term({"app": "daemon"}))


def _spread(rng: random.Random, raw: Json) -> None:
    one = {"topologyKey": "no-node-has-it", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    raw["spec"].setdefault("topologySpreadConstraints", []).append(one)


def _large(rng: random.Random, raw: Json) -> None:
    """It fits no node, or an empty one only."""
    spec = raw["spec"]
    # What other parts request of it may outweigh that, or wrap around.
    limits = [one["resources"]["limits"] for one in (*spec["containers"], *spec.get("initContainers", ()))]
    for amounts in (*limits, spec.get("overhead", {}), *spec.get("resources", {}).values()):
        amounts.pop("cpu", None)
    limits[0]["cpu"] = rng.choice(("150", "192", "1000"))


def _missing(rng: random.Random, raw: Json) -> None:
    raw["spec"]["containers"][0]["resources"]["limits"]["rdma/hca"] = "1"


def _port(rng: random.Random, raw: Json) -> None:
    raw["spec"]["containers"][0]["ports"] = [{"containerPort": PORT, "hostPort": PORT}]


def _gate(rng: random.Random, raw: Json) -> None:
    raw["spec"].setdefault("schedulingGates", []).append({"name": "example.com/closed"})


def _volume(rng: random.Random, raw: Json) -> None:
    """Of a claim whose volume no node of ours reaches."""
    claim = {"persistentVolumeClaim": {"claimName": "far"}}
    raw["spec"].setdefault("volumes", []).append({"name": "hopeless", **claim})


def _scheduler(rng: random.Random, raw: Json) -> None:
    raw["spec"]["schedulerName"] = rng.choice(("broken-scheduler", "not-served"))


def _incomplete(rng: random.Random, raw: Json) -> None:
    marks = {"kueue.x-k8s.io/pod-group-name": "large", "kueue.x-k8s.io/pod-group-total-count": "9999"}
    raw["spec"].pop("schedulingGroup", None)
    raw["metadata"]["annotations"] = marks


REASONS: tuple[Reason, ...] = (
    *(_selected, _near_none, _away_from_daemons, _spread, _large, _missing, _port, _gate, _volume, _scheduler),
    _incomplete,
)
