"""Claims of DRA drivers at the stand-in: where the real kubelet shows them, and how the product reads that."""

import json
import time
import zlib

import pytest

from kube.kubelet_api import podresources_pb2 as api
from nodeagent.observed.kubelet import Kubelet as Reader
from nodeagent.observed.kubelet import Listed
from tests.sandbox.kubelet.builders import Raw, container, pod
from tests.sandbox.kubelet.conftest import KubeletBench
from tests.waiting import SECONDS, eventually

DRIVER, HALF = "gpu.nvidia.com", "gpu-0-mig-3g40gb-9-4"


def claiming(name: str = "p") -> Raw:
    made = [container(f"c{n}", resources={"claims": [{"name": claim}]}) for n, claim in enumerate(("gpu", "nic"))]
    claims = [{"name": n, "resourceClaimName": f"{n}-of-{name}"} for n in ("gpu", "nic")]
    return pod(name, containers=[*made, container("without")], spec={"resourceClaims": claims})


def listed(bench: KubeletBench) -> dict[str, list[tuple[str, str, str]]]:
    """Claim, driver and device by container."""
    (found,) = bench.lister.List(api.ListPodResourcesRequest(), timeout=SECONDS).pod_resources
    return {
        each.name: [
            (claim.claim_name, device.driver_name, device.device_name)
            for claim in each.dynamic_resources
            for device in claim.claim_resources
        ]
        for each in found.containers
    }


def reader(bench: KubeletBench) -> Reader:
    return Reader(bench.root, clock=time.monotonic, wall_clock=time.time)


def ids(bench: KubeletBench) -> tuple[set[str], set[str]]:
    """By the List, and by the kubelet's record, as the agent reads both."""
    found = reader(bench)
    answer = found.listed()
    assert isinstance(answer, Listed)
    return set(answer.ids()), {i for entry in found.checkpoint() for i in entry.ids}


def test_each_container_is_listed_with_its_own_prepared_claims(bench: KubeletBench) -> None:
    claims = bench.kubelet().parts.claims
    uid = bench.run(claiming())["metadata"]["uid"]
    assert listed(bench) == {"c0": [], "c1": [], "without": []}
    claims.prepare(uid, "gpu-of-p", {DRIVER: []})
    assert (listed(bench)["c0"], ids(bench)) == ([], (set(), set())), "no driver has prepared it yet"

    claims.prepare(uid, "gpu-of-p", {DRIVER: [HALF]})
    claims.prepare(uid, "nic-of-p", {"dra.net": ["mlx5-0"]})

    assert listed(bench)["c0"] == [("gpu-of-p", DRIVER, HALF)]
    assert listed(bench)["c1"] == [("nic-of-p", "dra.net", "mlx5-0")]
    assert listed(bench)["without"] == []
    assert ids(bench) == ({f"{DRIVER}/{HALF}"},) * 2, "claims of other drivers count for nothing"


def test_a_kubelet_before_1_34_lists_no_claims_and_has_the_record(bench: KubeletBench) -> None:
    claims = bench.kubelet().parts.claims
    claims.listed = False
    claims.prepare(bench.run(claiming())["metadata"]["uid"], "gpu-of-p", {DRIVER: [HALF]})
    assert listed(bench)["c0"] == []
    assert ids(bench) == (set(), {f"{DRIVER}/{HALF}"})


def test_the_record_outlives_the_kubelet_and_has_its_form(bench: KubeletBench) -> None:
    first = bench.kubelet()
    raw = bench.run(claiming())
    first.parts.claims.prepare(raw["metadata"]["uid"], "gpu-of-p", {DRIVER: [HALF]})
    content = json.loads(bench.paths.claims.read_text())
    assert content["Checksum"] == zlib.crc32(content["Data"].encode())
    (claim,) = json.loads(content["Data"])["ClaimInfoStateList"]
    assert (claim["ClaimName"], claim["PodUIDs"]) == ("gpu-of-p", {raw["metadata"]["uid"]: {}})
    first.kill()

    second = bench.kubelet()
    eventually(lambda: bench.held() == {"p": []}, "the pods are known again")
    assert listed(bench)["c0"] == [("gpu-of-p", DRIVER, HALF)]
    second.parts.claims.unprepare(raw["metadata"]["uid"])
    assert ids(bench) == (set(), set())


def test_a_pod_that_was_not_admitted_gets_nothing(bench: KubeletBench) -> None:
    claims = bench.kubelet().parts.claims
    uid = bench.run(claiming())["metadata"]["uid"]
    for pod_uid, claim in (("unknown", "gpu-of-p"), (uid, "of another pod")):
        with pytest.raises(LookupError, match="no admitted pod"):
            claims.prepare(pod_uid, claim, {DRIVER: [HALF]})
    assert not bench.paths.claims.exists()
