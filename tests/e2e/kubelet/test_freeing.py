"""Rules 12, 13 and 18: when a device is free, and what List shows while containers still run."""

import time
from collections.abc import Mapping

import pytest

from kube import apply
from tests.e2e.kubelet.bench import PODS, KubeletSide, Raw, container, pod
from tests.e2e.kubelet.nodes import Seen
from tests.e2e.kubelet.test_registration import assert_stays


def holding(bench: KubeletSide, script: Mapping[str, str] | None = None, grace_seconds: int = 30) -> Raw:
    """A running pod with the bench's only device."""
    bench.plugin("a")
    return bench.run(pod(container(devices={bench.resource: 1}), grace_seconds=grace_seconds, script=script))


def only(bench: KubeletSide, raw: Raw) -> Seen:
    (seen,) = bench.containers(raw)
    return seen


def test_an_ended_pod_is_listed_until_the_kubelet_has_seen_it(bench: KubeletSide) -> None:
    bench.plugin("a")
    raw = bench.run(pod(container(devices={bench.resource: 1}, sleep=1.5)))
    assert bench.shown(raw) == ["a"]
    bench.wait_phase(raw, "Succeeded")
    bench.wait_freed(raw)


def test_the_pod_admitted_last_is_freed_too_since_some_version_after_1_30(bench: KubeletSide) -> None:
    """On 1.30 a device of an ended pod is in List for as long as no other pod comes to the node."""
    bench.plugin("a")
    raw = bench.run(pod(container(devices={bench.resource: 1}, sleep=0.1)), "Succeeded")
    if bench.active_list:
        bench.wait(lambda: not bench.shown(raw), "freed by itself")
        return
    assert_stays(lambda: bench.shown(raw) == ["a"], seconds=6)
    bench.wait_freed(raw)


def test_ended_pods_are_not_listed_since_1_34(bench: KubeletSide) -> None:
    bench.plugin("a")
    raw = bench.run(pod(container(devices={bench.resource: 1}, sleep=0.1)), "Succeeded")
    bench.wait_freed(raw)
    shown: list[str] | None = None if bench.active_list else []
    bench.wait(lambda: bench.shown(raw) == shown, "absent, or without devices up to 1.33")


def test_a_container_that_ended_keeps_its_device_while_its_pod_lives(bench: KubeletSide) -> None:
    bench.plugin("a", "b")
    one = {bench.resource: 1}
    raw = bench.run(pod(container("x", devices=one, sleep=0.5), container("y", devices=one)))
    bench.wait(lambda: [seen.state for seen in bench.containers(raw)] == ["exited", "running"], "x has ended")
    bench.wait(lambda: "terminated" in str(bench.pod(raw)["status"]["containerStatuses"]), "the kubelet saw it")
    assert bench.shown(raw) == ["a", "b"]


def test_a_pod_that_waits_for_its_restart_keeps_its_device(bench: KubeletSide) -> None:
    bench.plugin("a")
    looped = container(devices={bench.resource: 1}, sleep=0.2)
    raw = bench.create(pod(looped, restart_policy="Always", script={"restarts": "99", "exit-code": "1"}))
    bench.wait(lambda: bench.backs_off(raw), "it waits")
    assert bench.shown(raw) == ["a"]


def test_an_admitted_pod_shows_its_device_before_it_starts(bench: KubeletSide) -> None:
    bench.plugin("a")
    raw = bench.create(pod(container(devices={bench.resource: 1}), script={"start-seconds": "4"}))
    bench.wait(lambda: bench.shown(raw) == ["a"], "listed")
    assert bench.phase(raw) == "Pending"
    bench.wait_phase(raw, "Running")


@pytest.mark.parametrize(
    ("script", "grace_seconds"),
    [({"stop-seconds": "3"}, 30), ({"unkillable-seconds": "5"}, 1)],
    ids=["slow", "unkillable"],
)
def test_a_deleted_pod_is_listed_until_its_container_has_ended(
    bench: KubeletSide, script: dict[str, str], grace_seconds: int
) -> None:
    raw = holding(bench, script, grace_seconds)
    bench.delete(raw)
    while only(bench, raw).state == "running":
        shown = bench.shown(raw)
        assert shown == ["a"] or only(bench, raw).state == "exited"
        time.sleep(0.2)
    bench.wait(lambda: bench.shown(raw) is None, "not listed")
    bench.wait_gone(raw)


def test_a_finalizer_keeps_the_object_and_not_the_device(bench: KubeletSide) -> None:
    bench.plugin("a")
    raw = bench.run(pod(container(devices={bench.resource: 1}), finalizers=("gpuplan.test/kept",)))
    bench.delete(raw)
    bench.wait(lambda: only(bench, raw).state == "exited", "it has ended")
    bench.wait_freed(raw)
    assert bench.there(raw)
    apply.merge_patch(bench.admin, f"{PODS}/{raw['metadata']['name']}", {"metadata": {"finalizers": None}})
    bench.wait_gone(raw)


def test_a_force_deleted_pods_device_is_given_out_while_its_container_runs(bench: KubeletSide) -> None:
    """The false answer that costs data: free at once, two seconds before the container ends."""
    raw = holding(bench, {"unkillable-seconds": "inf"})
    bench.delete(raw, grace_seconds=0)
    bench.wait(lambda: bench.shown(raw) is None, "absent at once")
    other = bench.run(pod(container(devices={bench.resource: 1})))
    assert bench.shown(other) == ["a"]
    assert only(bench, raw).state == "running"
    assert only(bench, other).state == "running"


def test_a_force_deleted_container_has_two_seconds_or_its_own_grace(bench: KubeletSide) -> None:
    raw = holding(bench, {"stop-seconds": "20"})
    began = time.time()
    bench.delete(raw, grace_seconds=0)
    bench.wait(lambda: only(bench, raw).state == "exited", "stopped")
    least = 1.5 if bench.active_list else 19.5
    assert least < (only(bench, raw).finished_at or 0.0) - began < least + 10


def test_no_container_gets_less_than_two_seconds(bench: KubeletSide) -> None:
    raw = holding(bench, {"stop-seconds": "20"}, grace_seconds=1)
    began = time.time()
    bench.delete(raw)
    bench.wait(lambda: only(bench, raw).state == "exited", "stopped")
    assert 1.5 < (only(bench, raw).finished_at or 0.0) - began < 12


def test_a_second_forced_deletion_shortens_nothing(bench: KubeletSide) -> None:
    raw = holding(bench, {"stop-seconds": "6"})
    began = time.time()
    bench.delete(raw)
    time.sleep(1)
    bench.delete(raw, grace_seconds=0)
    bench.wait(lambda: bench.shown(raw) is None, "absent at once")
    assert only(bench, raw).state == "running"
    bench.wait(lambda: only(bench, raw).state == "exited", "stopped")
    assert (only(bench, raw).finished_at or 0.0) - began > 5.5


def test_a_patched_phase_frees_the_device_of_a_running_container(bench: KubeletSide) -> None:
    raw = holding(bench)
    bench.admit_another()
    path = f"{PODS}/{raw['metadata']['name']}/status"
    apply.merge_patch(bench.admin, path, {"status": {"phase": "Failed"}})
    bench.wait(lambda: not bench.shown(raw), "the device is free")
    other = bench.run(pod(container(devices={bench.resource: 1})))
    assert bench.shown(other) == ["a"]
    bench.wait_phase(raw, "Running")
    assert bench.shown(raw) == [], "listed again, without its device, permanently"
    assert only(bench, raw).state == "running"


def test_nothing_is_freed_until_the_list_is_read(bench: KubeletSide) -> None:
    """The checkpoint still has the entry of a pod that is gone; admission frees it by itself."""
    bench.plugin("a")
    raw = bench.run(pod(container(devices={bench.resource: 1})))
    bench.delete(raw)
    bench.wait_gone(raw)
    assert raw["metadata"]["uid"] in bench.node.paths.checkpoint.read_text()
    bench.run(pod(container(devices={bench.resource: 1})))
    assert raw["metadata"]["uid"] not in bench.node.paths.checkpoint.read_text()
