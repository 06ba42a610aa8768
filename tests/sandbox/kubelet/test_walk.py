"""A pod's whole way through one kubelet: admitted with a device, running, finished, and what is shown meanwhile."""

from sandbox.kubelet.runtime import ContainerState
from tests.sandbox.kubelet.builders import container, pod
from tests.sandbox.kubelet.conftest import KubeletBench
from tests.waiting import eventually


def test_a_pod_with_a_device_runs_and_finishes(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0")
    raw = bench.run(pod("p", containers=[container(sleep=0.3, devices=1)]))

    status = raw["status"]
    assert plugin.allocated == [["MIG-0"]]
    assert bench.held() == {"p": ["MIG-0"]}
    assert status["containerStatuses"][0]["ready"] is True
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"

    bench.wait_phase(raw, "Succeeded")
    eventually(lambda: bench.held() == {}, "the ended pod is not listed")
    assert [record.request.options.env["NVIDIA_VISIBLE_DEVICES"] for record in bench.runtime.containers()] == ["MIG-0"]


def test_statuses_wait_for_an_api_that_is_away(bench: KubeletBench) -> None:
    bench.kubelet()
    raw = bench.run(pod(containers=[container(sleep=0.1)]))
    bench.api.reachable = False
    eventually(lambda: bench.runtime.containers()[0].state is ContainerState.EXITED, "ended")
    assert bench.api.phase(raw) == "Running"

    bench.api.reachable = True
    bench.wait_phase(raw, "Succeeded")


def test_a_stopped_kubelet_still_writes_what_is_due(bench: KubeletBench) -> None:
    kubelet = bench.kubelet()
    raw = bench.run(pod(containers=[container()]))
    bench.api.change(raw, metadata={"labels": {"a": "b"}})
    kubelet.stop()

    statuses = [status["phase"] for uid, status in bench.api.statuses if uid == raw["metadata"]["uid"]]
    assert statuses[-1] == "Running"
    assert statuses == list(dict.fromkeys(statuses)), "nothing is written twice"
