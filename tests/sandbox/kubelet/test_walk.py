"""A pod's whole way through one kubelet: admitted with a device, running, finished, and what is shown meanwhile."""

from tests.sandbox.kubelet.builders import container, pod
from tests.sandbox.kubelet.conftest import Bench
from tests.sandbox.kubelet.fakes import wait_until


def test_a_pod_with_a_device_runs_and_finishes(bench: Bench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0")
    raw = bench.run(pod("p", containers=[container(sleep=0.3, devices=1)]))

    status = raw["status"]
    assert plugin.allocated == [["MIG-0"]]
    assert bench.held() == {"p": ["MIG-0"]}
    assert status["containerStatuses"][0]["ready"] is True
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"

    bench.wait_phase(raw, "Succeeded")
    wait_until(lambda: bench.held() == {}, "the ended pod is not listed")
    assert [record.request.options.env["NVIDIA_VISIBLE_DEVICES"] for record in bench.runtime.containers()] == ["MIG-0"]
