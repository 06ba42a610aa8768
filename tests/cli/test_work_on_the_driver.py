"""The page's way to work on a driver, typed as it stands on `gpuplan sandbox up`: hold-off, reset, mode, and back."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.driver.machine import observe
from tests.cli.sandbox_runs import EXAMPLES
from tests.waiting import eventually

PAGE = Path(__file__).parents[2] / "docs/operating.md"
NODE = "a100"
pytestmark = [pytest.mark.slow, pytest.mark.thorough]


@dataclass(frozen=True, kw_only=True)
class Shell:
    """An administrator's, with `nvidia-smi` of the simulated node on its path."""

    environment: dict[str, str]
    machine: Path

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        line = line.replace("NODE", NODE).replace("INDEX", "0")
        return subprocess.run(
            ["sh", "-c", line], env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    command = [sys.executable, "-m", "cli", "sandbox", "up", "-f", str(EXAMPLES / "mig")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as up:
        try:
            assert up.stdout is not None
            kubeconfig = up.stdout.readline().strip().partition("=")[2]
            folder = Path(kubeconfig).parent
            found = eventually(lambda: _machine(folder), "the node's machine", seconds=60.0)
            script = tmp_path / "nvidia-smi"
            script.write_text(f'#!/bin/sh\nexec {sys.executable} -m sandbox.driver.smi {found} "$@"\n')
            script.chmod(0o755)
            path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
            yield Shell(environment={**os.environ, "PATH": path, "KUBECONFIG": kubeconfig}, machine=found)
        finally:
            up.send_signal(signal.SIGINT)


def _machine(folder: Path) -> Path | None:
    """Of the node, once its agent has the driver open."""
    for agent in folder.glob("n*/agent.yaml"):
        if (machine := agent.parent / "gpus.json").exists() and "A100" in observe(machine)["gpus"][0]["name"]:
            return machine
    return None


def test_page_as_it_stands(shell: Shell) -> None:
    text = PAGE.read_text().partition("### Work on the driver\n")[2].partition("\n### ")[0]
    before, _, after = text.partition("And back:")
    gone = re.findall(r"^ {4}(\S.*)$", before, re.MULTILINE)
    back = re.findall(r"^ {4}(\S.*)$", after, re.MULTILINE)
    typed = re.findall(r"`(nvidia-smi [^`]+)`", before)
    assert (len(gone), len(back), len(typed)) == (5, 3, 2)
    eventually(lambda: "Running" in shell.run("kubectl get pod train-a").stdout, "the pods to run", seconds=60.0)
    assert "In use by another client" in shell.run(typed[0]).stdout

    # Bare pods: the page's reader has controllers.
    for line in [line.replace("kubectl drain", "kubectl drain --force") for line in gone]:
        done = shell.run(line)
        assert done.returncode == 0, (line, done.stderr)
    message = shell.run(gone[3]).stdout
    assert "gpuplan has closed the driver, and no pod holds a device of it. No other program has it open." in message
    for line in typed:
        done = shell.run(line)
        assert done.returncode == 0, (line, done.stdout)
    for line in back:
        assert shell.run(line).returncode == 0, line
    ready = shell.run("kubectl wait --for=condition=Ready --timeout=60s gpp/NODE")
    assert "condition met" in ready.stdout, ready.stderr
