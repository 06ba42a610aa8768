"""NVIDIA's own config-manager in a pod's process namespace, with a process that it signals, at an API server.

Takes the program, an API server and a folder; does the steps of a case and waits for the state after each. The
namespace keeps its search for a process within what was started here. It ends only what it started.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kube import apply, clients
from sandbox.apiserver import ApiServer
from sandbox.nvidia_plugin.projection import ConfigMapVolume
from tests.sandbox.nvidia_plugin.config_manager_cases import State
from tests.waiting import eventually

NODE = "node"
LABEL = "nvidia.com/device-plugin.config"
PLUGIN = "nvidia-device-plugin"
ENDS_SECONDS = 30.0
SENT = "Successfully sent signal"
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
PAUSE = "import signal; print('up', flush=True); signal.pause()"
SIGNALLED = (
    "import signal; signal.signal(signal.SIGHUP, lambda *_: None); print('up', flush=True)\nwhile True: signal.pause()"
)
_ERROR = re.compile(r"^E\d{4} .*?\] (.*)$", re.MULTILINE)


class RealConfigManager:
    """One container's worth of it; its node is its own."""

    def __init__(self, program: Path, server: ApiServer, folder: Path, settings: Mapping[str, str]) -> None:
        self.volume = ConfigMapVolume(folder / "available")
        self.chosen = folder / "config.yaml"
        self.log = folder / "log"
        self.log.touch()
        self._program = program
        self._api = clients.for_url(server.url)
        apply.create(self._api, "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig())
        self._environment = {
            **os.environ,
            "FALLBACK_STRATEGIES": "named,single",
            **settings,
            "KUBECONFIG": str(kubeconfig),
            "NODE_NAME": NODE,
            "CONFIG_FILE_SRCDIR": str(self.volume.folder),
            "CONFIG_FILE_DST": str(self.chosen),
            "PROCESS_TO_SIGNAL": PLUGIN,
        }
        self._first = _started(*NAMESPACE, sys.executable, "-c", PAUSE)
        self._inside = ("nsenter", "-t", str(_children(self._first)[0]), "-p", "-m")
        self._plugin: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0

    def project(self, data: Mapping[str, str]) -> None:
        self.volume.project(data)

    def label(self, value: str | None) -> None:
        apply.merge_patch(self._api, f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {LABEL: value}}})

    def plugin(self, runs: bool) -> None:
        """Only its first argument is looked at."""
        assert runs
        script = f'exec -a {PLUGIN} "$0" -c "$1"'
        self._plugin = _started(*self._inside, "bash", "-c", script, os.path.realpath(sys.executable), SIGNALLED)

    def start(self) -> None:
        self._end(self._process)
        self._run({"SEND_SIGNAL": "true", "SIGNAL": "1"})

    def run_once(self) -> None:
        self._run({"ONESHOT": "true", "SEND_SIGNAL": "false"})
        assert self._process is not None
        assert self._process.wait(60) == 0

    def await_state(self, expected: State) -> None:
        eventually(lambda: self.state() == expected, f"{expected}", seen=lambda: (self.state(), self.log.read_text()))

    def state(self) -> State:
        """What its files and its log say now."""
        said = self.log.read_text()
        errors = _ERROR.findall(said[self._began :])
        ended = errors[-1] if errors and self._process and self._process.poll() == 1 else None
        if ended is not None:
            ended = ended.replace(str(self.chosen), "{chosen}").replace(str(self.volume.folder), "{mounted}")
        key, text = self._key_and_text()
        return State(key=key, text=text, sent=said.count(SENT), ended=ended)

    def _key_and_text(self) -> tuple[str, str | None]:
        """Key and text. The program removes its link before it makes the next one: no look before a read helps."""
        key, text = "", None
        with contextlib.suppress(FileNotFoundError):
            key = self.chosen.readlink().name
            text = self.chosen.read_text()
        return key, text

    def close(self) -> None:
        for process in (self._process, self._plugin, self._first):
            self._end(process)

    def _run(self, more: Mapping[str, str]) -> None:
        self._began = self.log.stat().st_size
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._inside, str(self._program)], env={**self._environment, **more}, stdout=log, stderr=log
            )

    def _end(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is None:
            return
        for child in _children(process) if process.poll() is None else ():
            os.kill(child, signal.SIGKILL)  # what entered the namespace only waits for it, and ends with it
        process.wait(ENDS_SECONDS)
        if process.stdout:
            process.stdout.close()


def _children(process: subprocess.Popen[bytes]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def _started(*command: str) -> subprocess.Popen[bytes]:
    """Return when it is up."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n", f"{command} did not start"
    return process
