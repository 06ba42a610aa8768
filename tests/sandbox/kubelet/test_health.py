"""Rule 16: the health of held devices in the pod's status."""

from tests.sandbox.kubelet.builders import MIG, Raw, pod
from tests.sandbox.kubelet.conftest import KubeletBench
from tests.waiting import eventually


def health(bench: KubeletBench, raw: Raw) -> dict[str, str]:
    (status,) = bench.api.status(raw)["containerStatuses"]
    (entry,) = status["allocatedResourcesStatus"]
    assert entry["name"] == MIG
    return {resource["resourceID"]: resource["health"] for resource in entry["resources"]}


def test_health_follows_the_list_and_keeps_the_health_of_ids_that_left(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0")
    raw = bench.run(pod("p"))
    assert health(bench, raw) == {"MIG-0": "Healthy"}

    plugin.offer(unhealthy=("MIG-0",)).push()
    eventually(lambda: health(bench, raw) == {"MIG-0": "Unhealthy"}, "unhealthy")
    assert bench.held() == {"p": ["MIG-0"]}
    plugin.offer("MIG-0").push()
    eventually(lambda: health(bench, raw) == {"MIG-0": "Healthy"}, "healthy again")
    plugin.offer("MIG-1").push()
    eventually(lambda: bench.offered() == ["MIG-1"], "the id is gone")
    bench.run(pod("later"))
    assert health(bench, raw) == {"MIG-0": "Healthy"}
    assert bench.held()["p"] == ["MIG-0"]


def test_a_dead_plugins_devices_are_unhealthy(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0")
    raw = bench.run(pod())
    plugin.stop()

    eventually(lambda: health(bench, raw) == {"MIG-0": "Unhealthy"}, "unhealthy")
    assert bench.api.phase(raw) == "Running"
