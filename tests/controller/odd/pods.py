"""Odd pods that an API server takes, drawn from a seed: amounts, sizes and rules that no reasonable person writes.

Takes a generator and returns raw pods as the API server stores them. None of them is in the way of an ordinary pod:
what they keep away, or attract, are labels that ordinary pods lack.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.builders import objects
from tests.builders.objects import Json

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SLICE = "nvidia.com/mig-1g.10gb"
NAMESPACES = ("odd-a", "odd-b", "odd-c")
AMOUNTS = (
    *(
        "0",
        "1",
        "0.5",
        "1500m",
        "1n",
        "1e-9",
        "1e3",
        "1e30",
        "1e63",
        "1e999",
        "1Ki",
        "7Ei",
        "10Ei",
        "9E",
        "100E",
        "1e19",
    ),
    *("9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616"),
    *("18446744073709551617", "12345678901234567890123456789", "9" * 60, "1000000", "2147483648"),
)
NOTHING = ("0", "1e999", "1e30", "1e19", "18446744073709551616", "1e63")
"""Amounts that are none to Kubernetes."""
DEVICES = (
    SLICE,
    "nvidia.com/gpu",
    "nvidia.com/mig-7g.80gb",
    "nvidia.com/gpu-10gb",
    "nvidia.com/gpu-3000gb",
    "example.com/nic",
)
NOWHERE = {"pool": "none"}

Maker = Callable[[random.Random, str], Json]


def _pod(rng: random.Random, name: str, requests: Mapping[str, str] | None = None, **more: Any) -> Json:
    namespace = more.pop("namespace", None) or rng.choice(NAMESPACES)
    return objects.pod(name, namespace=namespace, requests={SLICE: "1"} if requests is None else requests, **more)


def _selector(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


def _term(selector: Json, topology: str = HOST, everywhere: bool = True) -> Json:
    return {"topologyKey": topology, "labelSelector": selector, **({"namespaceSelector": {}} if everywhere else {})}


def _apart(*terms: Json) -> Json:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def amounts(rng: random.Random, name: str) -> Json:
    """Numbers that 64 bits cannot hold, of everything that a pod requests."""
    requests = {key: rng.choice(AMOUNTS) for key in rng.sample(("cpu", "memory", "ephemeral-storage", *DEVICES), 3)}
    return _pod(rng, name, requests)


def containers(rng: random.Random, name: str) -> Json:
    """Many of them, whose amounts add up."""
    found = [
        objects.container(f"c{one}", {SLICE: rng.choice(AMOUNTS), "cpu": rng.choice(AMOUNTS)}) for one in range(40)
    ]
    init = [objects.container(f"i{one}", {SLICE: "1"}, restartPolicy="Always") for one in range(rng.randint(0, 5))]
    return _pod(rng, name, containers=found, initContainers=init)


def values(rng: random.Random, name: str) -> Json:
    number = rng.choice((1, 70, 5_000))
    chosen = [f"v{rng.randint(0, 99)}-{one}" for one in range(number)]
    return _pod(
        rng, name, affinity=_apart(_term(_selector("app", rng.choice(("In", "In", "NotIn")), *chosen), "no-such-key"))
    )


def terms(rng: random.Random, name: str) -> Json:
    number = rng.choice((2, 50, 1_000))
    kind = rng.choice(("In", "Exists", "NotIn"))
    chosen = [
        _selector(f"key-{one}", kind) if kind == "Exists" else _selector("app", kind, f"v{one}")
        for one in range(number)
    ]
    return _pod(
        rng, name, affinity=_apart(*(_term(one, f"no-such-key-{position}") for position, one in enumerate(chosen)))
    )


def itself(rng: random.Random, name: str) -> Json:
    """A label of its own, which it keeps away from."""
    return _pod(rng, name, metadata={"labels": {"own": name}}, affinity=_apart(_term(_selector("own", "In", name))))


def labels(rng: random.Random, name: str) -> Json:
    return _pod(rng, name, metadata={"labels": {f"label-{one}": str(one) for one in range(rng.choice((10, 3_000)))}})


def tolerations(rng: random.Random, name: str) -> Json:
    found = [{"key": f"key-{one}", "operator": "Exists"} for one in range(rng.choice((5, 500)))]
    return _pod(rng, name, tolerations=found)


def node_terms(rng: random.Random, name: str) -> Json:
    chosen = [
        {"matchExpressions": [{"key": HOST, "operator": "In", "values": [f"x{one}"]}]}
        for one in range(rng.choice((3, 500)))
    ]
    required = {"nodeSelectorTerms": chosen}
    return _pod(rng, name, affinity={"nodeAffinity": {REQUIRED: required}})


def spread(rng: random.Random, name: str) -> Json:
    found = [
        {
            "topologyKey": HOST if one == 0 else f"no-such-key-{one}",
            "maxSkew": rng.choice((1, 5, 2**31 - 1)),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": _selector("own", rng.choice(("In", "NotIn")), name),
        }
        for one in range(rng.choice((1, 30)))
    ]
    return _pod(rng, name, metadata={"labels": {"own": name}}, topologySpreadConstraints=found)


def sizes(rng: random.Random, name: str) -> Json:
    return _pod(
        rng, name, {f"nvidia.com/gpu-{rng.choice((0, 1, 7, 10, 999, 10**9))}gb": rng.choice(("1", "2", "1000"))}
    )


def absent(rng: random.Random, name: str) -> Json:
    """It fits a GPU, and no node that has one."""
    more = rng.choice(({"rdma/hca": "1"}, {"cpu": "1000000"}, {"example.com/nic": "1"}))
    return _pod(
        rng, name, {rng.choice((SLICE, "nvidia.com/mig-7g.80gb")): "1", **more}, priority=rng.choice((0, 0, 100))
    )


def several(rng: random.Random, name: str) -> Json:
    return _pod(
        rng, name, {SLICE: "2", "nvidia.com/mig-2g.20gb": "1", "nvidia.com/mig-3g.40gb": rng.choice(("1", "8"))}
    )


def gang(rng: random.Random, name: str) -> Json:
    """Of a gang that is never complete, or must stay in one zone."""
    marks = {"kueue.x-k8s.io/pod-group-name": rng.choice(("g1", "g2"))}
    more = {"annotations": {"kueue.x-k8s.io/pod-group-total-count": rng.choice(("2", "3", "9999", "-1", "x"))}}
    near = {"podAffinity": {REQUIRED: [_term(_selector("gang", "In", "g"), ZONE, everywhere=False)]}}
    affinity: Json = {"affinity": near} if rng.random() < 0.5 else {}
    return _pod(rng, name, namespace="odd-a", metadata={"labels": {**marks, "gang": "g"}, **more}, **affinity)


def follower(rng: random.Random, name: str) -> Json:
    """It must be where another one is, which may be nowhere."""
    number = rng.randint(0, 9)
    near = {"podAffinity": {REQUIRED: [_term(_selector("link", "In", f"l{number}"), everywhere=False)]}}
    own = {"link": f"l{rng.choice((number, number + 1))}"}
    return _pod(rng, name, namespace="odd-b", metadata={"labels": own}, affinity=near)


def gated(rng: random.Random, name: str) -> Json:
    return _pod(rng, name, schedulingGates=[{"name": f"example.com/gate-{one}"} for one in range(rng.choice((1, 500)))])


def volumes(rng: random.Random, name: str) -> Json:
    found = [
        {"name": f"v{one}", "persistentVolumeClaim": {"claimName": f"none-{one}"}} for one in range(rng.choice((1, 40)))
    ]
    return _pod(rng, name, volumes=found)


def elsewhere(rng: random.Random, name: str) -> Json:
    """Alike but for where it may go, by its selector, its ports or its scheduler."""
    more: Json = rng.choice(
        ({"nodeSelector": {HOST: "n0"}}, {"nodeSelector": NOWHERE}, {"schedulerName": "odd-scheduler"})
    )
    return _pod(
        rng, name, metadata={"labels": {"app": "same"}}, affinity=_apart(_term(_selector("app", "In", "same"))), **more
    )


KINDS: tuple[Maker, ...] = (
    *(amounts, containers, values, terms, itself, labels, tolerations, node_terms, spread, sizes, absent, several),
    *(gang, follower, gated, volumes, elsewhere),
)


def bound(rng: random.Random, name: str, node: str) -> Json:
    """An odd pod on a node, that holds nothing there which Kubernetes would count."""
    made = rng.choice((values, terms, itself, labels, spread, follower))(rng, name)
    requests = {key: rng.choice(NOTHING) for key in ("cpu", "memory", SLICE)}
    made["spec"]["containers"] = [objects.container("main", requests)]
    made["spec"]["nodeName"] = node
    made["status"] = {"phase": rng.choice(("Running", "Pending"))}
    if rng.random() < 0.2:
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made
