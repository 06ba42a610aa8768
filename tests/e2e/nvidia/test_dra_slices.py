"""NVIDIA's DRA driver publishes the MIG placements of our tables, with counters that mean the same.

With DynamicMIG it offers every placement to kube-scheduler, which takes those that fit into the counters of a GPU: two
fit exactly where our tables let two instances live together.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from controller.api.storage import read_slice
from kube import apply
from kube.quantities import to_int
from partitioning.layouts import Layout, check_together, instance_at
from partitioning.models import GpuModel
from sandbox.driver.boards import Board
from tests.builders import objects
from tests.builders.models import MODELS
from tests.e2e.nvidia.conftest import Machine
from tests.e2e.real_cluster import NODES, RealCluster
from tests.e2e.rig.nvidia.dra import DYNAMIC, DraDriver
from tests.e2e.rig.nvidia.host import Host
from tests.e2e.rig.nvidia.programs import DRA_DRIVER
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(3000)  # the first run builds the program
TABLES = [MODELS[key] for key in ("A30-24GB", "A100-40GB", "H100-80GB", "B200-180GB", "RTX-PRO-6000-BLACKWELL-96GB")]
"""One of each table of placements, and two of the widest."""
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
NODE = "dra-slices"
COUNTS, SECONDS = 36, 180.0
WHOLE, SLICE = "gpu-0", "memory-slice-"
NOT_SIMULATED: set[str] = set()
"""What it calls of the driver, and is refused."""
Raw = dict[str, Any]
Offer = tuple[str, set[int], int, int]
"""Profile, memory slices, multiprocessors and MiB."""


@pytest.fixture
def publish(
    cluster: RealCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[Host], list[Raw]]]:
    """What the driver of a machine publishes for the node, which has no kubelet."""
    if cluster.minor < COUNTS:
        pytest.skip("this API server drops the counters, as it comes")
    program: Callable[[str, str], Path] = request.getfixturevalue("program")
    plugin = program(DRA_DRIVER, "gpu-kubelet-plugin")
    apply.create(cluster.admin, NODES, objects.node(NODE, mode=None, spec={"unschedulable": True}))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(cluster.plane.kubeconfig())

    def run(host: Host) -> list[Raw]:
        driver = DraDriver(plugin, host, NODE, kubeconfig, tmp_path / "k", DYNAMIC)
        driver.start()
        try:
            return eventually(
                lambda: complete(published(cluster)), "its slices are published", SECONDS, seen=driver.said
            )
        finally:
            driver.stop()

    yield run
    cluster.kubectl("delete", "--raw", f"{NODES}/{NODE}")
    for each in published(cluster):
        cluster.kubectl("delete", "--raw", f"{SLICES}/{each['metadata']['name']}")


def published(cluster: RealCluster) -> list[Raw]:
    items: list[Raw] = apply.get(cluster.admin, SLICES)["items"]
    return [each for each in items if each["spec"].get("nodeName") == NODE]


@pytest.mark.parametrize("model", TABLES, ids=lambda model: model.key)
def test_it_publishes_our_placements(model: GpuModel, machine: Machine, publish: Callable[[Host], list[Raw]]) -> None:
    host = machine(model.key, mig_enabled=True)
    slices = publish(host)
    assert {read_slice(each) for each in slices} == {NODE}, "so the controller sees that it serves the node"
    devices = {each["name"]: each for slice_ in slices for each in slice_["spec"].get("devices") or ()}
    (counters,) = [each for slice_ in slices for each in slice_["spec"].get("sharedCounters") or ()]
    total = amounts(counters)
    whole = devices.pop(WHOLE, None)
    assert whole is None or amounts(*whole["consumesCounters"]) == total
    assert {name: offered(device) for name, device in devices.items()} == placements(model)
    wrong = [
        f"{one} and {other}: {problem or 'possible'}"
        for (one, first), (other, second) in combinations(sorted(devices.items()), 2)
        for problem in (forbidden(model, first, second),)
        if fit(total, first, second) != (problem is None)
    ]
    assert wrong == []
    assert host.not_simulated == NOT_SIMULATED
    print(f"{model.key}: {len(devices)} placements, {len(total)} counters, {'and' if whole else 'not'} the whole GPU")


def placements(model: GpuModel) -> dict[str, Offer]:
    """By the driver's name of a device."""
    board = Board(model=model)
    return {
        f"gpu-0-mig-{spec.name.replace('.', '').replace('+', '-')}-{spec.profile_id}-{start}": (
            spec.name,
            set(range(start, start + spec.size)),
            board.multiprocessors_of(spec),
            board.memory_of(spec),
        )
        for spec in model.profiles
        for start in spec.starts
    }


def offered(device: Raw) -> Offer:
    """The same, as it is published."""
    consumed = amounts(*device["consumesCounters"])
    slices = {int(name.removeprefix(SLICE)) for name in consumed if name.startswith(SLICE)}
    return device["attributes"]["profile"]["string"], slices, consumed["multiprocessors"], consumed["memory"] >> 20


def forbidden(model: GpuModel, *devices: Raw) -> str | None:
    """Why our tables do not let them live together. The counts of media engines are not simulated."""
    both = []
    for device in devices:
        profile, slices, *_ = offered(device)
        found = instance_at(model, profile, min(slices))
        assert found is not None
        both.append(found)
    if not both[0].mask & both[1].mask and model.excludes(both[0].profile, both[1].profile):
        return None
    return check_together(model, Layout.of(both))


def fit(total: Mapping[str, int], *devices: Raw) -> bool:
    """As kube-scheduler counts."""
    consumed = [amounts(*device["consumesCounters"]) for device in devices]
    return all(sum(each.get(name, 0) for each in consumed) <= amount for name, amount in total.items())


def amounts(counters: Raw) -> dict[str, int]:
    return {name: to_int(each["value"]) for name, each in counters["counters"].items()}


def complete(slices: list[Raw]) -> list[Raw] | None:
    """All of the pool's newest generation."""
    newest = max((each["spec"]["pool"]["generation"] for each in slices), default=0)
    found = [each for each in slices if each["spec"]["pool"]["generation"] == newest]
    return found if found and len(found) == found[0]["spec"]["pool"]["resourceSliceCount"] else None
