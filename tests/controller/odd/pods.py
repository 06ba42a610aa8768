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
NUMBERS = ("0", "-1", "-0", "00", "+1", "x", "", "0x1", "1e3", "9223372036854775807", "9223372036854775808", "9" * 63)
"""What a comparison by Gt and Lt takes for one, or not."""
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
GANGS: tuple[dict[str, str], ...] = (
    {"kueue.x-k8s.io/pod-group-name": "name", "kueue.x-k8s.io/pod-group-total-count": "size"},
    {"kueue.x-k8s.io/pod-group-name": "name", "kueue.x-k8s.io/pod-group-serving": "true"},
    {"scheduling.volcano.sh/group-name": "name", "scheduling.volcano.sh/group-min-member": "size"},
    {"scheduling.x-k8s.io/pod-group": "name"},
    {"pod-group.scheduling.sigs.k8s.io/name": "name", "pod-group.scheduling.sigs.k8s.io/min-available": "size"},
    {},
)
"""Marks of each system; the last is Kubernetes' own, which is no mark."""

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
    size = rng.choice((0, 999, 10**9, rng.randint(1, 100), rng.randint(1, 3000)))
    return _pod(rng, name, {f"nvidia.com/gpu-{size}gb": rng.choice(("1", "1", "2", "1000"))})


def numbers(rng: random.Random, name: str) -> Json:
    return _pod(rng, name, {rng.choice((SLICE, "nvidia.com/mig-7g.80gb")): str(rng.randint(15, 500))})


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
    """Of a gang of any system, that is never complete, starts one by one, or must stay in one zone."""
    group, size = rng.choice(("g1", "g2")), rng.choice(("2", "3", "9999", "-1", "x"))
    marks: dict[str, str] = rng.choice(GANGS)
    named = {key: group if value == "name" else size if value == "size" else value for key, value in marks.items()}
    near = {"podAffinity": {REQUIRED: [_term(_selector("gang", "In", "g"), ZONE, everywhere=False)]}}
    more: Json = {"affinity": near} if rng.random() < 0.5 else {}
    if not marks:
        more["schedulingGroup"] = {"podGroupName": group}
    return _pod(rng, name, namespace="odd-a", metadata={"labels": {"gang": "g"}, "annotations": named}, **more)


def follower(rng: random.Random, name: str) -> Json:
    """It must be where another one is, which may be nowhere."""
    number = rng.randint(0, 9)
    near = {"podAffinity": {REQUIRED: [_term(_selector("link", "In", f"l{number}"), everywhere=False)]}}
    own = {"link": f"l{rng.choice((number, number + 1))}"}
    return _pod(rng, name, namespace="odd-b", metadata={"labels": own}, affinity=near)


def named(rng: random.Random, name: str) -> Json:
    """It tells nodes apart by their names, as pods of a DaemonSet do."""
    fields = [
        {"key": "metadata.name", "operator": rng.choice(("In", "NotIn")), "values": [f"n{rng.randint(0, 6)}"]}
        for _ in range(rng.choice((1, 2)))
    ]
    terms = [{"matchFields": fields}] * rng.choice((1, 50))
    return _pod(rng, name, affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})


def ports(rng: random.Random, name: str) -> Json:
    made = _pod(rng, name)
    found = [{"containerPort": 1, "hostPort": rng.choice((1, 8080, 65535))} for _ in range(rng.choice((1, 200)))]
    made["spec"]["containers"][0]["ports"] = found
    return made


def claims(rng: random.Random, name: str) -> Json:
    """What DRA allocates, in addition to what plugins do."""
    requests = {rng.choice((SLICE, "nvidia.com/gpu")): "1", "example.com/nic": "1"}
    return _pod(rng, name, requests, resourceClaims=[{"name": "c"}] if rng.random() < 0.5 else [])


def gated(rng: random.Random, name: str) -> Json:
    return _pod(rng, name, schedulingGates=[{"name": f"example.com/gate-{one}"} for one in range(rng.choice((1, 500)))])


def volumes(rng: random.Random, name: str) -> Json:
    found = [
        {"name": f"v{one}", "persistentVolumeClaim": {"claimName": f"none-{one}"}} for one in range(rng.choice((1, 40)))
    ]
    return _pod(rng, name, volumes=found)


def scheduled(rng: random.Random, name: str) -> Json:
    """By a scheduler whose profile ignores a resource, spreads by default and keeps to zones, or is not served."""
    requests = {SLICE: "1", rng.choice(("cpu", "example.com/ignored")): "1"}
    return _pod(rng, name, requests, schedulerName=rng.choice(("odd-scheduler", "odd-scheduler", "unknown")))


def elsewhere(rng: random.Random, name: str) -> Json:
    """Alike but for where it may go, by its selector, its ports or its scheduler."""
    more: Json = rng.choice(
        ({"nodeSelector": {HOST: "n0"}}, {"nodeSelector": dict(NOWHERE)}, {"schedulerName": "odd-scheduler"})
    )
    return _pod(
        rng, name, metadata={"labels": {"app": "same"}}, affinity=_apart(_term(_selector("app", "In", "same"))), **more
    )


def sidecars(rng: random.Random, name: str) -> Json:
    """Before and between init containers, which need what those that stay have left."""
    found = [
        objects.container(f"i{one}", {key: rng.choice(AMOUNTS) for key in ("cpu", SLICE)})
        for one in range(rng.randint(1, 6))
    ]
    for one in found:
        one.update(rng.choice(({"restartPolicy": "Always"}, {})))
    return _pod(rng, name, initContainers=found)


def of_pod(rng: random.Random, name: str) -> Json:
    """What it requests as a whole, and what its runtime class adds."""
    keys = ("cpu", "memory", "hugepages-2Mi", "hugepages-1Gi")
    amounts = {key: rng.choice(AMOUNTS) for key in rng.sample(keys, rng.randint(0, 3))}
    added = {key: rng.choice(AMOUNTS) for key in rng.sample((*keys, SLICE, "example.com/nic"), rng.randint(0, 3))}
    return _pod(rng, name, resources=rng.choice(({}, {"requests": amounts}, {"limits": amounts})), overhead=added)


def huge_pages(rng: random.Random, name: str) -> Json:
    requests = {f"hugepages-{rng.choice(('2Mi', '1Gi', '64Ki', '0', 'x'))}": rng.choice(AMOUNTS) for _ in range(2)}
    return _pod(rng, name, {SLICE: "1", "ephemeral-storage": rng.choice(AMOUNTS), **requests})


def measured(rng: random.Random, name: str) -> Json:
    """By numbers in labels of nodes, which may be none."""
    chosen = [
        {"key": rng.choice((HOST, "cores")), "operator": rng.choice(("Gt", "Lt")), "values": [rng.choice(NUMBERS)]}
        for _ in range(rng.choice((1, 30)))
    ]
    return _pod(rng, name, affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": chosen}]}}})


def domains(rng: random.Random, name: str) -> Json:
    """Spread by every field that there is."""
    policies = ("Honor", "Ignore")
    constraint = {
        "topologyKey": rng.choice((HOST, ZONE)),
        "maxSkew": rng.choice((1, 2**31 - 1)),
        "minDomains": rng.choice((1, 3, 2**31 - 1)),
        "whenUnsatisfiable": "DoNotSchedule",
        "matchLabelKeys": rng.choice(([], ["own"], ["absent", "own"])),
        "nodeTaintsPolicy": rng.choice(policies),
        "nodeAffinityPolicy": rng.choice(policies),
        "labelSelector": rng.choice((None, {}, _selector("own", "Exists"))),
    }
    return _pod(rng, name, metadata={"labels": {"own": name}}, topologySpreadConstraints=[constraint])


def ranked(rng: random.Random, name: str) -> Json:
    """At the ends of what a priority can be."""
    priority = rng.choice((-(2**31), 2**31 - 1, 2_000_001_000, 10**9))
    return _pod(rng, name, priority=priority, preemptionPolicy=rng.choice(("Never", "PreemptLowerPriority")))


def templates(rng: random.Random, name: str) -> Json:
    """Claims and volumes that are to be made from what is gone."""
    claims = [{"name": "c", "resourceClaimTemplateName": "gone"}, {"name": "d", "resourceClaimName": "gone"}]
    made = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "gone"}
    found = [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": made}}}]
    more: Json = rng.choice(
        ({"resourceClaims": claims}, {"volumes": found}, {"resourceClaims": claims, "volumes": found})
    )
    return _pod(rng, name, **more)


KINDS: tuple[Maker, ...] = (
    *(amounts, containers, values, terms, itself, labels, tolerations, node_terms, spread, sizes, absent, several),
    *(numbers, gang, follower, named, ports, claims, gated, volumes, scheduled, elsewhere, sidecars, of_pod),
    *(huge_pages, measured, domains, ranked, templates),
)


def labels_of_namespace(rng: random.Random, name: str) -> dict[str, str]:
    """None, its name as Kubernetes labels it, or very many."""
    many = {f"label-{one}": "" for one in range(2_000)}
    return rng.choice(({}, {"kubernetes.io/metadata.name": name}, many))


def hiding(rng: random.Random, node: str) -> Json:
    """It holds devices that no status shows, as of a card that lost its instances."""
    made = objects.pod("hiding", namespace="odd-a", node=node, phase=rng.choice(("Running", "Pending")))
    made["spec"]["containers"] = [objects.container("main", {SLICE: rng.choice(("1", "1", "2", "1000000"))})]
    return made


def bound(rng: random.Random, name: str, node: str, roomy: bool) -> Json:
    """An odd pod on a node, that holds nothing which Kubernetes counts, or (`roomy`) what no other pod requests."""
    made = rng.choice((values, terms, itself, labels, spread, follower))(rng, name)
    requests = {key: rng.choice(NOTHING) for key in ("cpu", "memory", SLICE)}
    if roomy and rng.random() < 0.3:
        requests[rng.choice(("nvidia.com/gpu-3000gb", "example.com/nic"))] = rng.choice(AMOUNTS)
    made["spec"]["containers"] = [objects.container("main", requests)]
    made["spec"]["nodeName"] = node
    made["status"] = {"phase": rng.choice(("Running", "Pending"))}
    if rng.random() < 0.2:
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made
