"""NVIDIA's device plugin and MPS control daemon as processes on a simulated machine, at a kubelet of the tests.

Takes their folder, a machine and a kubelet; starts them and signals them. What `nvidia-smi` and the MPS control command
do is the simulated machine's. Ends what it started.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.e2e.rig.nvidia.host import Host
from tests.sandbox.nvidia_plugin.offers import Kubelet
from tests.sandbox.nvidia_plugin.plugin_cases import State
from tests.waiting import eventually

ROOT = Path(__file__).parents[4]
COMMANDS = {
    "nvidia-smi": f"cd {ROOT} && exec {sys.executable} -m sandbox.driver.smi {{machine}}",
    "nvidia-cuda-mps-control": f"exec {sys.executable} -I {ROOT}/sandbox/mps/nvidia-cuda-mps-control",
}
ENDS_SECONDS = 60.0
RETRIES = "Retrying in 30s"
_ERROR = re.compile(r"^E\d{4} .*?\] (.*)$", re.MULTILINE)


class Process:
    """One of the two. `start` and `sighup` return when it has begun to read its config."""

    def __init__(self, host: Host, log: Path, begins: str, *command: str | Path) -> None:
        self._host, self._log, self._begins, self._command = host, log, begins, command
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = 0

    def start(self) -> None:
        environment = self._host.environment({"PATH": f"{self._host.folder}/bin:{os.environ['PATH']}"})
        with self._log.open("wb") as log:
            command = self._host.command(*self._command)
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self._await_begin()

    def sighup(self) -> None:
        if self.ended is None and self._process is not None:
            self._process.send_signal(signal.SIGHUP)
            self._await_begin()

    @property
    def ended(self) -> str | None:
        """The last error of one that has exited."""
        if self._process is None or self._process.poll() is None:
            return None
        errors = _ERROR.findall(self.said())
        return errors[-1] if errors else f"exit {self._process.returncode}: {self.said()}"

    @property
    def waits(self) -> bool:
        """For its next try."""
        return RETRIES in self.said().rpartition(self._begins)[2]

    def state(self) -> str:
        return self.ended or ("waits" if self.waits else "runs")

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """As the kubelet stops it: by SIGTERM first."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(ENDS_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(ENDS_SECONDS)
                raise

    def _await_begin(self) -> None:
        self._begun += 1
        eventually(
            lambda: self.ended is not None or self.said().count(self._begins) >= self._begun,
            f"{self._command[0]} reads its config",
            seen=self.said,
        )


class RealPrograms:
    """Both, on a machine that is served."""

    def __init__(self, programs: Path, host: Host, at: Kubelet) -> None:
        self.kubelet, self.machine, self.mps_root = at, host.store.path, host.folder / "mps"
        self._config = host.folder / "config.yaml"
        (host.folder / "bin").mkdir()
        for name, command in COMMANDS.items():
            script = host.folder / "bin" / name
            script.write_text(f'#!/bin/sh\n{command.format(machine=self.machine)} "$@"\n')
            script.chmod(0o755)
        flag = f"--config-file={self._config}"
        folder = host.folder
        self._daemon = Process(host, folder / "daemon.log", "Starting Daemons.", programs / "mps-control-daemon", flag)
        plugin = (programs / "nvidia-device-plugin", flag, f"--mps-root={self.mps_root}")
        self._plugin = Process(host, folder / "plugin.log", "Starting Plugins.", *plugin)

    def start(self, text: str) -> None:
        self._config.write_text(text)
        self._daemon.start()
        self._await_daemon()
        self._plugin.start()

    def sighup(self, text: str) -> None:
        self._config.write_text(text)
        self._daemon.sighup()
        self._await_daemon()
        self._plugin.sighup()

    def write(self, text: str) -> None:
        self._config.write_text(text)

    def look(self) -> None:
        """It has inotify."""

    def programs(self) -> State:
        return {"daemon": self._daemon.state(), "plugin": self._plugin.state()}

    def said(self) -> str:
        return json.dumps({"daemon": self._daemon.said(), "plugin": self._plugin.said()}, indent=1)

    def stop(self) -> None:
        self._plugin.stop()
        self._daemon.stop()

    def _await_daemon(self) -> None:
        """It is ready, or says why it is not."""
        ready = self.mps_root / ".ready"
        eventually(lambda: ready.exists() or self._daemon.state() != "runs", "the MPS control daemon", seen=self.said)
