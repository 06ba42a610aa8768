"""The agent as it runs: with the sandbox's API server and kubelet, the real plugin, and the simulated driver."""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from crds.definition import definition
from crds.v1alpha1 import names
from kube import apply, clients, leases
from kube.errors import NotFound
from nodeagent import health, process
from nodeagent.__main__ import main
from nodeagent.agent import Agent, PassEnd
from nodeagent.handover.boot import boot_id
from nodeagent.handover.config import PluginConfig, read_config
from nodeagent.hardware import driver_loss
from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.health import NoPassError
from nodeagent.process import AgentProcess
from nodeagent.statedir import AnotherAgentError, StateDir
from sandbox.apiserver import ApiServer
from sandbox.driver import faults, incidents
from sandbox.driver.status import Status
from tests.nodeagent.items import mig
from tests.nodeagent.real_node import NODE, PLAN, PODS, Node, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    found = ApiServer()
    found.start()
    api = clients.for_url(found.url)
    apply.create(api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE}}
    apply.create(api, "/api/v1/namespaces", namespace)
    yield found
    found.stop()


@pytest.fixture
def node(server: ApiServer) -> Iterator[Node]:
    api = clients.for_url(server.url)
    status = {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"}}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "status": status}
    apply.create(api, "/api/v1/nodes", body)
    with tempfile.TemporaryDirectory(prefix="ga-", dir="/tmp") as directory:  # unix sockets want short paths
        found = Node(Path(directory), server)
        yield found
        found.stop()
    for path in (PLAN, f"/api/v1/nodes/{NODE}"):
        try:
            apply.delete(api, path)
        except NotFound:
            continue
    for pod in apply.get(api, PODS)["items"]:
        apply.delete(api, f"{PODS}/{pod['metadata']['name']}", grace_seconds=0)


@pytest.fixture
def command(node: Node, server: ApiServer) -> list[str]:
    """Runs the agent as a process of its own on the simulated machine."""
    kubeconfig, config = node.directory / "kubeconfig", node.directory / "agent.yaml"
    kubeconfig.write_text(server.kubeconfig())
    config.write_text(yaml.safe_dump(json.loads(node.settings.model_dump_json(by_alias=True))))
    words = ["--node-name", NODE, "--config", str(config), "--kubeconfig", str(kubeconfig)]
    return [sys.executable, "-m", "sandbox.driver.run", str(node.machine), "-m", "nodeagent", *words]


def test_a_plan_becomes_instances_that_pods_get_and_keep(node: Node) -> None:
    node.plan(mig(0, ("3g.40gb", 4), ("1g.10gb", 0)))
    node.start_agent()
    wait_until(node.ready)
    config = read_config(StateDir(node.settings.state_dir).plugin)
    assert isinstance(config, PluginConfig)
    assert config.boot_id == boot_id() != ""
    assert node.layouts() == ["1g.10gb at 0, 3g.40gb at 4", "empty"]
    allocatable = apply.get(node.api, f"/api/v1/nodes/{NODE}")["status"]["allocatable"]
    assert allocatable["nvidia.com/mig-3g.40gb"] == "1"

    node.pod("holder", "nvidia.com/mig-3g.40gb")
    wait_until(lambda: node.phase("holder") == "Running")
    node.plan(mig(0, ("7g.80gb", 0)), mig(1, "1g.10gb*7"))
    wait_until(lambda: node.gpu().get("state") == "WaitingForRelease")
    wait_until(lambda: node.gpu(1).get("state") == "Ready")
    assert node.gpu()["message"] == "3g.40gb at 4 is held by pod default/holder"
    assert node.layouts()[0] == "3g.40gb at 4"

    node.stop_agent()
    node.start_agent()
    apply.delete(node.api, f"{PODS}/holder")
    wait_until(node.ready)
    assert node.layouts()[0] == "7g.80gb at 0"
    assert apply.get(node.api, f"/api/v1/nodes/{NODE}")["spec"].get("taints", []) == []


def test_the_status_follows_when_the_last_partition_goes_away(node: Node) -> None:
    node.plan(mig(0, ("7g.80gb", 0)))
    node.start_agent()
    wait_until(node.ready)
    wait_until(lambda: apply.get(node.api, PLAN)["status"].get("summary") == {"mode": "Auto", "mig": "0/1"})

    node.plan(mig(0))
    wait_until(node.ready)

    assert node.layouts() == ["empty", "empty"]
    assert apply.get(node.api, PLAN)["status"]["summary"] == {"mode": "Auto"}


def test_it_serves_metrics_health_and_a_heartbeat(node: Node) -> None:
    node.plan(mig(0, ("1g.10gb", 0)))
    agent = node.start_agent()
    wait_until(node.ready)

    def page(path: str) -> str:
        with urlopen(f"http://127.0.0.1:{agent.server.port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    assert page("/healthz") == page("/readyz") == "ok\n"
    series = page("/metrics")
    assert 'gpuplan_agent_partitions{node="n1",profile="1g.10gb",state="Free"} 1.0' in series
    assert "gpuplan_agent_apply_duration_seconds_count 1.0" in series
    assert 'gpuplan_agent_confirmed_generation{node="n1"}' in series
    assert "gpuplan_agent_heartbeat_age_seconds" in series
    lease = apply.get(
        node.api, f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases/{names.agent_lease(NODE)}"
    )
    assert lease["spec"]["holderIdentity"] == NODE


def test_an_agent_whose_passes_all_fail_lets_its_heartbeat_end(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "FAILED_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(health, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(health, "STUCK_SECONDS", 0.3)
    node.plan(mig(0, ("1g.10gb", 0)))
    agent = node.start_agent()
    wait_until(node.ready)

    broken, reconcile = [True], Agent.reconcile

    def fails(self: Agent) -> PassEnd:
        if broken:
            raise RuntimeError("a broken world")
        return reconcile(self)

    monkeypatch.setattr(Agent, "reconcile", fails)
    wait_until(lambda: "the pass failed again: RuntimeError: a broken world" in caplog.text)
    wait_until(lambda: agent.health.problems() != [])

    assert caplog.text.count("Traceback") == 1
    with pytest.raises(NoPassError, match="no pass completed in"):
        agent.heartbeat.beat()

    monkeypatch.setattr(leases, "RETRY_SECONDS", 600.0)
    agent.heartbeat.beat_now()
    wait_until(lambda: "no pass completed in" in agent.heartbeat.last_error)
    taken = agent.heartbeat.taken
    broken.clear()
    wait_until(lambda: agent.heartbeat.taken > taken)


def test_a_second_agent_is_refused(node: Node) -> None:
    node.start_agent()

    with pytest.raises(AnotherAgentError, match="one agent per node"):
        AgentProcess(NODE, node.settings, node.api, NvmlDriver())


def one_more_pass(agent: AgentProcess, path: Path) -> None:
    """Whatever is written next to the plugin's files wakes the agent."""
    passes = agent.metrics.registry.get_sample_value("gpuplan_agent_pass_duration_seconds_count")
    path.touch()
    wait_until(lambda: agent.metrics.registry.get_sample_value("gpuplan_agent_pass_duration_seconds_count") != passes)


def test_the_status_is_not_written_again_when_nothing_changes(node: Node) -> None:
    node.plan(mig(0, ("1g.10gb", 0)))
    node.start_agent()
    wait_until(node.ready)
    wait_until(lambda: [p["state"] for p in node.gpu()["partitions"]] == ["Free"])
    before = apply.get(node.api, PLAN)

    agent = node.agent
    assert agent is not None
    for name in ("one", "two", "three"):
        one_more_pass(agent, node.directory / "state" / "plugin" / name)

    assert apply.get(node.api, PLAN) == before


def test_every_pass_has_its_own_time_for_the_api(node: Node) -> None:
    node.plan(mig(0, ("1g.10gb", 0)))
    agent = node.start_agent()
    wait_until(node.ready)
    agent._budget._used_seconds = 100.0

    one_more_pass(agent, node.directory / "state" / "plugin" / "one")

    with agent._budget.request() as timeouts:
        assert timeouts.connect_seconds + timeouts.read_seconds > 10


def test_a_forced_ready_unknown_is_answered(node: Node) -> None:
    node.plan(mig(0, ("1g.10gb", 0)))
    node.start_agent()
    wait_until(node.ready)
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

    wait_until(node.ready)


def test_the_command_ends_cleanly_on_sigterm(node: Node, command: list[str]) -> None:
    node.plan(mig(0, ("2g.20gb", 0)))
    with subprocess.Popen(command, stderr=subprocess.PIPE) as agent:
        wait_until(node.ready)
        agent.send_signal(signal.SIGTERM)
        _, log = agent.communicate(timeout=20)

    assert agent.returncode == 0, log.decode()
    assert node.layouts()[0] == "2g.20gb at 0"
    StateDir(node.directory / "state").lock().release()


def test_a_replaced_driver_ends_the_process_and_the_next_one_continues(node: Node, command: list[str]) -> None:
    node.plan(mig(0, ("2g.20gb", 0)))
    with subprocess.Popen(command, stderr=subprocess.PIPE) as first:
        wait_until(node.ready)
        incidents.replace_driver(node.machine, "590.48.01")
        _, log = first.communicate(timeout=60)
    assert first.returncode == 3
    assert "the NVIDIA driver was replaced" in log.decode()
    assert "version mismatch" in log.decode()

    node.plan(mig(0, ("4g.40gb", 0)))
    with subprocess.Popen(command, stderr=subprocess.PIPE) as second:
        wait_until(node.ready)
        second.send_signal(signal.SIGTERM)
        second.communicate(timeout=20)
    assert second.returncode == 0
    assert apply.get(node.api, PLAN)["status"]["node"]["driverVersion"] == "590.48.01"
    assert node.gpu()["partitions"][0]["resource"] == "nvidia.com/mig-4g.40gb"


def test_a_driver_that_stays_away_ends_the_process(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_loss, "GONE_SECONDS", 0.2)
    node.plan(mig(0, ("1g.10gb", 0)))
    node.start_agent()
    wait_until(node.ready)
    faults.inject(
        node.machine,
        "nvmlDeviceGetCount_v2",
        faults.Action.FAIL,
        status=Status.DRIVER_NOT_LOADED,
        times=faults.ALWAYS,
    )

    wait_until(lambda: not node.running())

    assert "the NVIDIA driver has been unusable" in node.ended_by


def test_wrong_settings_end_with_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text("resyncSecond: 5\n")

    assert main(["--node-name", NODE, "--config", str(config)]) == 2

    assert "unknown key resyncSecond (did you mean resyncSeconds?)" in capsys.readouterr().err


def test_plugin_as_first_word_runs_the_device_plugin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpuplan-nodeagent"])  # the plugin reads its words there

    with pytest.raises(SystemExit) as ended:
        main(["plugin", "--help"])

    assert ended.value.code == 0
    assert "--mps-root" in capsys.readouterr().out
