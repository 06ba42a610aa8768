"""Rules 12 and 13: when devices are free, and what List says while containers still run."""

import time
from dataclasses import replace

from sandbox.kubelet.runtime import ContainerState
from tests.sandbox.kubelet.builders import MIG, container, pod
from tests.sandbox.kubelet.conftest import QUICK, KubeletBench
from tests.waiting import eventually


def states(bench: KubeletBench, name: str) -> list[ContainerState]:
    return [record.state for record in bench.runtime.containers() if record.request.pod == name]


def test_a_deleted_pod_is_listed_until_its_container_has_ended(bench: KubeletBench) -> None:
    bench.kubelet()
    bench.plugin("MIG-0")
    raw = bench.run(pod("p", annotations={"unkillable-seconds": "inf"}))
    bench.api.delete(raw, grace_seconds=0)
    eventually(lambda: bench.runtime.stopping(raw["metadata"]["uid"]), "the stop has reached the container")

    assert bench.held() == {"p": ["MIG-0"]}
    bench.runtime.release(raw["metadata"]["uid"])
    bench.wait_gone(raw)
    assert bench.held() == {}
    assert states(bench, "p") == [ContainerState.EXITED]


def test_the_grace_period_bounds_a_slow_stop(bench: KubeletBench) -> None:
    bench.kubelet()
    raw = bench.run(pod(containers=[container()], annotations={"stop-seconds": "600"}))
    bench.api.delete(raw, grace_seconds=0)

    bench.wait_gone(raw)
    assert [record.exit_code for record in bench.runtime.containers()] == [137]


def test_a_force_deleted_pods_device_is_given_out_while_its_container_runs(bench: KubeletBench) -> None:
    bench.kubelet()
    bench.plugin("MIG-0")
    first = bench.run(pod("first", annotations={"stop-seconds": "600"}))

    bench.api.remove(first["metadata"]["uid"])
    eventually(lambda: bench.held() == {}, "not listed any more")
    assert states(bench, "first") == [ContainerState.RUNNING]
    bench.run(pod("second"))
    assert bench.held() == {"second": ["MIG-0"]}
    eventually(lambda: states(bench, "first") == [ContainerState.EXITED], "the force stop's own grace is over")


def test_a_second_shorter_stop_changes_nothing(bench: KubeletBench) -> None:
    """Deleted with a grace period, then by force: the container runs on with the first one."""
    bench.kubelet()
    bench.plugin("MIG-0")
    first = bench.run(pod("first", annotations={"stop-seconds": "600"}))
    uid = first["metadata"]["uid"]
    bench.api.delete(first, grace_seconds=600)
    eventually(lambda: bench.runtime.stopping(uid), "the first stop has reached the container")

    bench.api.remove(uid)
    eventually(lambda: bench.held() == {}, "not listed any more")
    second = bench.run(pod("second"))
    bench.api.delete(second, grace_seconds=0)
    bench.wait_gone(second)
    assert states(bench, "first") == [ContainerState.RUNNING]


def test_a_phase_that_another_client_patches_frees_the_device_permanently(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0", "MIG-1", prefers=True)
    plugin.preference = lambda available, size: ["MIG-0"]
    raw = bench.run(pod("p"))

    bench.api.change(raw, status={**bench.api.status(raw), "phase": "Failed"})
    eventually(lambda: bench.held() == {}, "absent")
    bench.wait_phase(raw, "Running")
    eventually(lambda: bench.held() == {"p": []}, "listed again, with no devices")
    assert states(bench, "p") == [ContainerState.RUNNING]
    status = bench.api.status(raw)["containerStatuses"][0]["allocatedResourcesStatus"]
    assert status == [{"name": MIG, "resources": [{"resourceID": "MIG-0", "health": "Healthy"}]}]
    bench.run(pod("q"))
    assert bench.held() == {"p": [], "q": ["MIG-0"]}


def test_an_ended_pod_is_listed_until_the_kubelet_has_noticed(bench: KubeletBench) -> None:
    bench.kubelet(timings=replace(QUICK, exit_notice_seconds=0.4))
    bench.plugin("MIG-0")
    raw = bench.run(pod("p", containers=[container(sleep=0.05, devices=1)]))
    eventually(lambda: states(bench, "p") == [ContainerState.EXITED], "the process is gone")

    assert bench.held() == {"p": ["MIG-0"]}
    bench.wait_phase(raw, "Succeeded")
    assert bench.held() == {}


def test_a_finished_container_of_a_living_pod_keeps_its_device(bench: KubeletBench) -> None:
    bench.kubelet()
    bench.plugin("MIG-0")
    raw = bench.run(pod("p", containers=[container("a", sleep=0.02, devices=1), container("b")]))
    eventually(
        lambda: "terminated" in bench.api.status(raw)["containerStatuses"][0]["state"], "the first container has ended"
    )

    assert bench.held() == {"p": ["MIG-0"]}
    assert bench.api.phase(raw) == "Running"


def test_devices_are_freed_only_when_they_are_looked_at(bench: KubeletBench) -> None:
    """The checkpoint keeps an ended pod's entry until an admission or a List, and then until the next write."""
    bench.kubelet()
    plugin = bench.plugin("MIG-0")
    raw = bench.run(pod(containers=[container(sleep=0.02, devices=1)]), "Succeeded")
    uid = raw["metadata"]["uid"]
    assert uid in bench.paths.checkpoint.read_text()

    bench.held()
    assert uid in bench.paths.checkpoint.read_text(), "a List frees, and does not write"
    plugin.push()
    eventually(lambda: uid not in bench.paths.checkpoint.read_text(), "the next device update writes")


def test_a_deleted_pod_that_waits_to_start_is_finished(bench: KubeletBench) -> None:
    bench.kubelet()
    raw = bench.run(pod(containers=[container()], annotations={"start-seconds": "600"}), "Pending")
    eventually(lambda: len(bench.runtime.containers()) == 1, "created")

    bench.api.delete(raw)
    bench.wait_gone(raw)


def test_a_finalizer_keeps_the_object_and_not_the_device(bench: KubeletBench) -> None:
    bench.kubelet()
    bench.plugin("MIG-0")
    raw = bench.run(pod("p"))
    bench.api.kept_by_finalizer.add(raw["metadata"]["uid"])
    bench.api.delete(raw)

    eventually(lambda: bench.held() == {}, "not listed")
    assert bench.api.pod(raw)["metadata"]["deletionTimestamp"]


def test_no_stop_gets_less_than_the_shortest_grace(bench: KubeletBench) -> None:
    """A deletion with grace 0 is seen as such before the object is gone; the container has two seconds all the same."""
    bench.kubelet()
    bench.plugin("MIG-0")
    raw = bench.run(pod("p", annotations={"stop-seconds": "60"}))
    asked_at = time.time()
    bench.api.delete(raw, grace_seconds=0)

    bench.wait_gone(raw)
    (record,) = bench.runtime.containers()
    assert (record.finished_at or 0.0) - asked_at > QUICK.force_stop_seconds - 0.01
