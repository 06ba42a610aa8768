"""What a status tick writes, and when it writes nothing."""

from typing import Any

from sandbox.kubelet.devices import Counts
from sandbox.kubelet.node_status import NodeReading, status_patch
from tests.sandbox.kubelet.fake_api import merged

R = "nvidia.com/mig-1g.10gb"
NONE = Counts(capacity={}, allocatable={}, removed=())


def patch(
    node: NodeReading, counts: Counts, *, new_node: bool = False, now: float = 0.0, due: bool = False
) -> dict[str, Any] | None:
    return status_patch(node, counts, boots=1, new_node=new_node, now=now, due=due)


def reading(status: dict[str, Any]) -> NodeReading:
    return NodeReading(name="n", uid="u", status=status)


def after(node: NodeReading, counts: Counts, *, new_node: bool = False) -> NodeReading:
    wanted = patch(node, counts, new_node=new_node)
    assert wanted is not None
    return reading(merged(node.status, wanted["status"]))


def test_a_second_tick_with_nothing_new_writes_nothing() -> None:
    node = after(reading({}), Counts(capacity={R: 4}, allocatable={R: 3}, removed=()))

    assert (node.status["capacity"][R], node.status["allocatable"][R]) == ("4", "3")
    assert patch(node, Counts(capacity={R: 4}, allocatable={R: 3}, removed=())) is None


def test_each_write_has_its_time_and_none_is_made_for_the_time_alone() -> None:
    """So a reader knows when the kubelet counted what it wrote."""
    node = after(reading({}), NONE)
    wanted = patch(node, Counts(capacity={R: 4}, allocatable={R: 4}, removed=()), now=60.0)

    assert wanted is not None
    times = {(each["lastHeartbeatTime"], each["lastTransitionTime"]) for each in wanted["status"]["conditions"]}
    assert times == {("1970-01-01T00:01:00Z", "1970-01-01T00:00:00Z")}
    assert patch(node, NONE, now=120.0) is None
    assert patch(node, NONE, now=120.0, due=True) is not None


def test_the_manifests_numbers_win_over_ours_for_ordinary_resources() -> None:
    node = after(reading({"capacity": {"cpu": 192}, "allocatable": {"cpu": "190"}}), NONE)

    assert (node.status["capacity"]["cpu"], node.status["allocatable"]["cpu"]) == ("192", "190")
    assert node.allocatable["cpu"] == 190_000
    assert node.allocatable["pods"] == 110


def test_a_removed_resource_stays_as_zero() -> None:
    node = after(reading({}), Counts(capacity={R: 4}, allocatable={R: 4}, removed=()))
    node = after(node, Counts(capacity={}, allocatable={}, removed=(R,)))
    assert (node.status["capacity"][R], node.status["allocatable"][R]) == ("0", "0")

    assert patch(node, NONE) is None, "and nothing is written about it again"


def test_a_new_node_starts_without_the_gpu_resources_of_its_manifest() -> None:
    claimed = {"capacity": {R: "7", "nvidia.com/gpu": "8", "example.com/nic": "2"}}
    node = after(reading(claimed), NONE, new_node=True)

    assert (node.status["capacity"][R], node.status["allocatable"]["nvidia.com/gpu"]) == ("0", "0")
    assert node.status["allocatable"]["example.com/nic"] == "2"
    assert after(reading(claimed), NONE).status["capacity"][R] == "7", "an old one keeps what it says"
