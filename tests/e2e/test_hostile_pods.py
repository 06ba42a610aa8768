"""One tenant's pods that the real API server takes: an ordinary pod alongside each of them runs within a minute.

The sandbox's nodes on a real control plane, with the rights and policies of deploy/. What admission refuses is refused
with a sentence.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from kube import apply
from kube.errors import ApiError
from sandbox.cli.manifests import load
from sandbox.cluster import Cluster
from tests.builders import objects
from tests.builders.objects import Json
from tests.controller.odd.pods import HOST, REQUIRED, SLICE
from tests.e2e.real_cluster import ROOT
from tests.e2e.rig.controlplane import Binaries, RealControlPlane
from tests.e2e.rig.controlplane.tenants import RealServers
from tests.waiting import eventually

PODS = "/api/v1/namespaces/{}/pods"
MINUTE = 60.0


def term(key: str, operator: str, *values: str, topology: str = HOST) -> Json:
    expression = {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
    return {"topologyKey": topology, "labelSelector": {"matchExpressions": [expression]}, "namespaceSelector": {}}


def hostile(name: str, requests: dict[str, str], *terms: Json, **labels: str) -> Json:
    spec: Json = {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}} if terms else {}
    raw = objects.pod(name, namespace="odd", requests=requests, metadata={"labels": labels}, **spec)
    return objects.manifest(raw, status=False)


ONE = {SLICE: "1"}
HOSTILE: dict[str, Sequence[Json]] = {
    "cpu that no number holds": [hostile("odd", {"nvidia.com/mig-2g.20gb": "1", "cpu": "1e999"})],
    "memory that no number holds": [hostile("odd", {**ONE, "memory": "18446744073709551617"})],
    "60,000 values": [hostile("odd", ONE, term("app", "In", *(f"v{one}" for one in range(60_000))))],
    "5,000 terms": [hostile("odd", ONE, *(term("app", "In", f"v{one}") for one in range(5_000)))],
    "2,000 terms that no index serves": [
        hostile("odd", ONE, *(term("app", "NotIn", f"v{one}", topology=f"none-{one}") for one in range(2_000)))
    ],
    "60 pods that keep off themselves": [
        hostile(f"odd-{one}", {**ONE, "example.com/none": "1"}, term("own", "In", f"o{one}"), own=f"o{one}")
        for one in range(60)
    ],
}
REFUSED = ("1e999", "18446744073709551617", "1001")


def phase(cluster: Cluster, name: str) -> bool:
    """Whether the pod runs."""
    pod = apply.get(cluster.api, f"{PODS.format('good')}/{name}")
    return bool(pod["status"].get("phase") == "Running")


@pytest.fixture
def cluster(programs: Binaries, tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(control_plane=RealServers(RealControlPlane(programs, directory=tmp_path / "plane")))
    yield found
    found.stop()


def test_an_ordinary_pod_alongside_each_hostile_one_runs_within_a_minute(cluster: Cluster) -> None:
    nodes = [body for body in load([str(ROOT / "examples" / "mig")]) if body["kind"] == "Node"]
    cluster.start(
        [*nodes, *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in ("odd", "good"))]
    )
    eventually(lambda: len(cluster.plans()) == len(nodes), "a plan for every node", 2 * MINUTE)

    for number, (kind, pods) in enumerate(HOSTILE.items()):
        for position, raw in enumerate(pods):
            raw["metadata"]["name"] = f"odd-{number}-{position}"  # those before may still be ending
            apply.create(cluster.api, PODS.format("odd"), raw)
        good = objects.manifest(objects.pod(f"good-{number}", namespace="good", requests=ONE), status=False)
        apply.create(cluster.api, PODS.format("good"), good)
        eventually(
            partial(phase, cluster, f"good-{number}"),
            f"the ordinary pod alongside {kind} runs",
            MINUTE,
            seen=lambda: [
                (raw["metadata"]["name"], raw["spec"].get("nodeName"), raw["status"]) for raw in cluster.pods()
            ],
        )
        for raw in (*pods, good):
            where = PODS.format(raw["metadata"]["namespace"])
            apply.delete(cluster.api, f"{where}/{raw['metadata']['name']}")

    for amount in REFUSED:
        with pytest.raises(ApiError, match="requests more than 1000 of a GPU resource"):
            apply.create(cluster.api, PODS.format("odd"), hostile("refused", {SLICE: amount}))
