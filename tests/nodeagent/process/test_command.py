"""The command gpuplan-nodeagent: its exit codes, and what it leaves behind."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kube import apply
from nodeagent.__main__ import main
from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.statedir import StateDir
from tests.apiserver import ApiServer
from tests.nodeagent.items import mig
from tests.nodeagent.real_node import NODE, PLAN, AgentNode
from tests.waiting import SECONDS, eventually

pytestmark = pytest.mark.slow
GRACE_SECONDS = 60
"""terminationGracePeriodSeconds of the agent's pods."""


@pytest.fixture
def command(node: AgentNode, server: ApiServer) -> list[str]:
    """Runs the agent as a process of its own on the simulated machine."""
    kubeconfig, config = node.directory / "kubeconfig", node.directory / "agent.yaml"
    kubeconfig.write_text(server.kubeconfig())
    config.write_text(yaml.safe_dump(json.loads(node.settings.model_dump_json(by_alias=True))))
    words = ["--node-name", NODE, "--config", str(config), "--kubeconfig", str(kubeconfig)]
    return [sys.executable, "-m", "sandbox.driver.run", str(node.machine), "-m", "nodeagent", *words]


def test_the_command_ends_cleanly_on_sigterm(node: AgentNode, command: list[str]) -> None:
    node.plan(mig(0, ("2g.20gb", 0)))
    with subprocess.Popen(command, stderr=subprocess.PIPE) as agent:
        eventually(node.ready, "the plan to be Ready")
        agent.send_signal(signal.SIGTERM)
        _, log = agent.communicate(timeout=SECONDS)

    assert agent.returncode == 0, log.decode()
    assert node.layouts()[0] == "2g.20gb at 0"
    StateDir(node.directory / "state").lock().close()


def test_sigterm_lets_the_step_on_a_gpu_finish_and_begins_no_other(node: AgentNode, command: list[str]) -> None:
    node.plan(mig(0, ("2g.20gb", 0), ("2g.20gb", 2)))
    with subprocess.Popen(
        slow(command, "nvmlDeviceCreateGpuInstanceWithPlacement", 3), stderr=subprocess.PIPE
    ) as agent:
        eventually(lambda: journal(node), "the step is begun")
        agent.send_signal(signal.SIGTERM)
        _, log = agent.communicate(timeout=SECONDS)

    assert agent.returncode == 0, log.decode()
    assert node.layouts()[0] == "2g.20gb at 0"
    (instance,) = NvmlDriver().observe_gpu(0).instances
    assert not instance.half_made
    assert journal(node) == []


@pytest.mark.thorough
def test_sigterm_ends_it_while_a_call_hangs_and_the_next_one_continues(node: AgentNode, command: list[str]) -> None:
    """Within the grace period of its pod: the driver has a third of it for an answer."""
    node.plan(mig(0, ("2g.20gb", 0)))
    with subprocess.Popen(slow(command, "nvmlGpuInstanceCreateComputeInstance", 600), stderr=subprocess.PIPE) as agent:
        eventually(lambda: journal(node) and node.layouts()[0], "the step is half done")
        agent.send_signal(signal.SIGTERM)
        _, log = agent.communicate(timeout=GRACE_SECONDS)
    assert agent.returncode == 0, log.decode()
    assert "creating the compute instance" in log.decode()

    with subprocess.Popen(command, stderr=subprocess.PIPE) as second:
        eventually(node.ready, "the plan to be Ready")
        second.send_signal(signal.SIGTERM)
        second.communicate(timeout=SECONDS)
    assert node.layouts()[0] == "2g.20gb at 0"
    assert journal(node) == []


def slow(command: list[str], function: str, seconds: float) -> list[str]:
    """The same on a driver one of whose functions takes so long."""
    python, _, _, machine, *rest = command
    return [python, "-m", "tests.nodeagent.process.slow_driver", machine, function, str(seconds), *rest]


def journal(node: AgentNode) -> list[Path]:
    """Of the steps that are open."""
    return list((node.directory / "state/journal").glob("*.json"))


@pytest.mark.thorough
def test_a_replaced_driver_ends_the_process_and_the_next_one_continues(node: AgentNode, command: list[str]) -> None:
    node.plan(mig(0, ("2g.20gb", 0)))
    with subprocess.Popen(command, stderr=subprocess.PIPE) as first:
        eventually(node.ready, "the plan to be Ready")
        node.replace_driver("590.48.01")
        _, log = first.communicate(timeout=60)
    assert first.returncode == 3
    assert "the NVIDIA driver was replaced" in log.decode()
    assert "version mismatch" in log.decode()

    node.plan(mig(0, ("4g.40gb", 0)))
    with subprocess.Popen(command, stderr=subprocess.PIPE) as second:
        eventually(node.ready, "the plan to be Ready")
        second.send_signal(signal.SIGTERM)
        second.communicate(timeout=SECONDS)
    assert second.returncode == 0
    assert apply.get(node.api, PLAN)["status"]["node"]["driverVersion"] == "590.48.01"
    assert node.gpu()["partitions"][0]["resource"] == "nvidia.com/mig-4g.40gb"


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
