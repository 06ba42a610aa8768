"""The agent as it runs: with the sandbox's API server and kubelet, the real plugin, and the simulated driver."""

import gc
import os
from pathlib import Path
from urllib.request import urlopen

import pytest

from crds.v1alpha1 import names
from kube import apply, leases
from nodeagent import health, process
from nodeagent.agent import Agent, PassEnd
from nodeagent.handover.config import PluginConfig, read_config
from nodeagent.handover.files import boot_id
from nodeagent.hardware import driver_loss
from nodeagent.hardware.driver_thread import ThreadedDriver
from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.health import NoPassError
from nodeagent.process import AgentProcess
from nodeagent.statedir import AnotherAgentError, StateDir
from sandbox.driver.status import Status
from tests import faults
from tests.nodeagent.items import mig
from tests.nodeagent.real_node import NODE, PLAN, PODS, AgentNode
from tests.waiting import eventually

pytestmark = pytest.mark.slow


def test_a_plan_becomes_instances_that_pods_get_and_keep(node: AgentNode) -> None:
    node.plan(mig(0, ("3g.40gb", 4), ("1g.10gb", 0)))
    node.start_agent()
    eventually(node.ready, "the plan to be Ready")
    config = read_config(StateDir(node.settings.state_dir).plugin)
    assert isinstance(config, PluginConfig)
    assert config.boot_id == boot_id() != ""
    assert node.layouts() == ["1g.10gb at 0, 3g.40gb at 4", "empty"]
    allocatable = apply.get(node.api, f"/api/v1/nodes/{NODE}")["status"]["allocatable"]
    assert allocatable["nvidia.com/mig-3g.40gb"] == "1"

    node.pod("holder", "nvidia.com/mig-3g.40gb")
    pod = f"{PODS}/holder"
    eventually(lambda: node.phase("holder") == "Running", "the running pod", seen=lambda: apply.get(node.api, pod))
    node.plan(mig(0, ("7g.80gb", 0)), mig(1, "1g.10gb*7"))
    eventually(lambda: node.gpu().get("state") == "WaitingForRelease", "GPU 0 to wait for its pod")
    eventually(lambda: node.gpu(1).get("state") == "Ready", "GPU 1 to be Ready")
    assert node.gpu()["message"] == "3g.40gb at 4 is held by pod default/holder"
    assert node.layouts()[0] == "3g.40gb at 4"

    node.stop_agent()
    node.start_agent()
    apply.delete(node.api, pod)
    eventually(node.ready, "the plan to be Ready")
    assert node.layouts()[0] == "7g.80gb at 0"
    assert apply.get(node.api, f"/api/v1/nodes/{NODE}")["spec"].get("taints", []) == []


def test_the_status_follows_when_the_last_partition_goes_away(node: AgentNode) -> None:
    node.plan(mig(0, ("7g.80gb", 0)))
    node.start_agent()
    eventually(node.ready, "the plan to be Ready")
    eventually(
        lambda: apply.get(node.api, PLAN)["status"].get("summary", {}).get("mig") == "0/1",
        "one free partition in the summary",
    )

    node.plan(mig(0))
    eventually(node.ready, "the plan to be Ready")

    assert node.layouts() == ["empty", "empty"]
    assert apply.get(node.api, PLAN)["status"]["summary"]["mig"] == "0/0"


def test_the_agent_serves_metrics_and_health_and_sends_a_heartbeat(node: AgentNode) -> None:
    node.plan(mig(0, ("1g.10gb", 0)))
    agent = node.start_agent()
    eventually(node.ready, "the plan to be Ready")

    def page(path: str) -> str:
        with urlopen(f"http://127.0.0.1:{agent.server.port}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    assert page("/healthz") == page("/readyz") == "ok\n"
    series = page("/metrics")
    assert 'gpuplan_agent_partitions{profile="1g.10gb",state="Free"} 1.0' in series
    assert "gpuplan_agent_apply_duration_seconds_count 1.0" in series
    assert "gpuplan_agent_confirmed_generation " in series
    assert "gpuplan_agent_heartbeat_age_seconds" in series
    lease = apply.get(
        node.api, f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases/{names.agent_lease(NODE)}"
    )
    assert lease["spec"]["holderIdentity"] == NODE


def test_an_agent_whose_passes_all_fail_lets_its_heartbeat_end(
    node: AgentNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "FAILED_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(health, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(health, "STUCK_SECONDS", 0.3)
    node.plan(mig(0, ("1g.10gb", 0)))
    agent = node.start_agent()
    eventually(node.ready, "the plan to be Ready")

    broken, reconcile = [True], Agent.reconcile

    def fails(self: Agent) -> PassEnd:
        if broken:
            raise RuntimeError("a broken world")
        return reconcile(self)

    monkeypatch.setattr(Agent, "reconcile", fails)
    eventually(lambda: "the pass failed again: RuntimeError: a broken world" in caplog.text, "a second failed pass")
    eventually(lambda: agent.health.problems() != [], "a problem on the health page")

    assert caplog.text.count("Traceback") == 1
    with pytest.raises(NoPassError, match="no pass completed in"):
        agent.heartbeat.beat()

    monkeypatch.setattr(leases, "RETRY_SECONDS", 600.0)
    agent.heartbeat.beat_now()
    eventually(lambda: "no pass completed in" in agent.heartbeat.last_error, "a heartbeat that is held back")
    taken = agent.heartbeat.taken
    broken.clear()
    eventually(lambda: agent.heartbeat.taken > taken, "another heartbeat")


def test_a_second_agent_is_refused(node: AgentNode) -> None:
    node.start_agent()

    with pytest.raises(AnotherAgentError, match="one agent per node"):
        AgentProcess(NODE, node.settings, node.api, NvmlDriver())


def test_while_a_call_hangs_the_lock_is_kept_though_the_interpreter_has_forgotten_the_agent(
    node: AgentNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at its end: the kernel keeps the process, and what that has open, until the call returns."""
    monkeypatch.setattr(ThreadedDriver, "close", lambda _: False)
    agent = AgentProcess(NODE, node.settings, node.api, NvmlDriver())
    agent.close()
    del agent
    gc.collect()

    with pytest.raises(AnotherAgentError, match="one agent per node"):
        StateDir(node.settings.state_dir).lock()

    for link in Path("/proc/self/fd").iterdir():
        if link.is_symlink() and link.readlink() == node.settings.state_dir / "agent.lock":
            os.close(int(link.name))
    StateDir(node.settings.state_dir).lock().close()


def one_more_pass(agent: AgentProcess, path: Path) -> None:
    """Whatever is written next to the plugin's files wakes the agent."""
    passes = agent.metrics.registry.get_sample_value("gpuplan_agent_pass_duration_seconds_count")
    path.touch()
    eventually(
        lambda: agent.metrics.registry.get_sample_value("gpuplan_agent_pass_duration_seconds_count") != passes,
        "another pass",
    )


def test_the_status_is_not_written_again_when_nothing_changes(node: AgentNode) -> None:
    node.plan(mig(0, ("1g.10gb", 0)))
    node.start_agent()
    eventually(node.ready, "the plan to be Ready")
    eventually(lambda: [p["state"] for p in node.gpu()["partitions"]] == ["Free"], "one free partition")
    before = apply.get(node.api, PLAN)

    agent = node.agent
    assert agent is not None
    for name in ("one", "two", "three"):
        one_more_pass(agent, node.directory / "state" / "plugin" / name)

    assert apply.get(node.api, PLAN) == before


def test_every_pass_has_its_own_time_for_the_api(node: AgentNode) -> None:
    node.plan(mig(0, ("1g.10gb", 0)))
    agent = node.start_agent()
    eventually(node.ready, "the plan to be Ready")
    agent._budget._used_seconds = 100.0

    one_more_pass(agent, node.directory / "state" / "plugin" / "one")

    def seconds_of_a_request() -> float:
        with agent._budget.request() as timeouts:
            return timeouts.connect_seconds + timeouts.read_seconds

    eventually(lambda: seconds_of_a_request() > 10, "a pass that began after the time was used up")


def test_a_forced_ready_unknown_is_answered(node: AgentNode) -> None:
    node.plan(mig(0, ("1g.10gb", 0)))
    node.start_agent()
    eventually(node.ready, "the plan to be Ready")
    silent = {
        "type": "Ready",
        "status": "Unknown",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "AgentSilent",
        "message": "",
    }
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": NODE},
        "status": {"conditions": [silent]},
    }
    apply.apply_status(node.api, PLAN, body, manager=names.CONTROLLER_MANAGER, force=True)

    eventually(node.ready, "the plan to be Ready")


def test_a_driver_that_stays_away_ends_the_process(node: AgentNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_loss, "GONE_SECONDS", 0.2)
    node.plan(mig(0, ("1g.10gb", 0)))
    node.start_agent()
    eventually(node.ready, "the plan to be Ready")
    faults.inject(
        node.machine,
        "nvmlDeviceGetCount_v2",
        status=Status.DRIVER_NOT_LOADED,
        times=faults.ALWAYS,
    )

    eventually(lambda: not node.running(), "the end of the agent")

    assert "the NVIDIA driver has been unusable" in node.ended_by
