"""The stand-ins of NVIDIA's device plugin and MPS control daemon answer as the real programs did, case by case.

The record is of v0.19.1. The same cases run on the real programs in tests/e2e/nvidia, which fails where a new version
of theirs answers otherwise; `python -m tests.e2e.nvidia.record` writes it.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.driver.machine import create
from sandbox.nvidia_plugin.mps_daemon import MpsControlDaemon
from sandbox.nvidia_plugin.plugin import NvidiaDevicePlugin
from sandbox.nvidia_plugin.programs import Program
from tests.builders.models import MODELS
from tests.drawn import points
from tests.sandbox.nvidia_plugin.offers import Kubelet, kubelet
from tests.sandbox.nvidia_plugin.plugin_cases import CASES, RECORDED, Case, State, state, steps


class StandIns:
    """Both, at one kubelet."""

    def __init__(self, root: Path, at: Kubelet, case: Case) -> None:
        self.kubelet, self.machine, self.mps_root = at, root / "machine.json", root / "mps"
        create(self.machine, [(MODELS[key], options) for key, options in case.gpus], "test")
        self._text, self._now = "", 0.0
        self._daemon = MpsControlDaemon(self.machine, lambda: self._text, self.mps_root)
        self._plugin = NvidiaDevicePlugin(self.machine, lambda: self._text, at.folder.parent, self.mps_root)

    def start(self, text: str) -> None:
        self._text = text
        self._daemon.start(self._now)
        self._plugin.start(self._now)

    def sighup(self, text: str) -> None:
        self._text = text
        self._daemon.sighup(self._now)
        self._plugin.sighup(self._now)
        self._now += 1
        self._plugin.step(self._now)

    def write(self, text: str) -> None:
        self._text = text

    def look(self) -> None:
        self._plugin.step(self._now)

    def programs(self) -> State:
        return {
            "daemon": _said(self._daemon, self._daemon._retry_at),
            "plugin": _said(self._plugin, self._plugin._retry_at),
        }

    def stop(self) -> None:
        self._plugin.terminate(self._now)


def _said(program: Program, again_at: float | None) -> str:
    return program.ended or ("waits" if again_at is not None else "runs")


@pytest.fixture
def root() -> Iterator[Path]:
    """Short, for a socket has room for 107 characters."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize("case", points(CASES, each=3), ids=lambda case: case.name)
def test_the_stand_ins_answer_as_the_real_programs(case: Case, root: Path) -> None:
    recorded = json.loads(RECORDED.read_text())[case.name]
    assert len(recorded) == len(case.texts)
    with kubelet(root / "kubelet" / "device-plugins") as at:
        side = StandIns(root, at, case)
        try:
            for number in steps(side, case):
                assert state(side, case) == recorded[number], f"step {number}"
        finally:
            side.stop()


def test_the_record_has_the_cases_and_no_others() -> None:
    assert list(json.loads(RECORDED.read_text())) == [case.name for case in CASES]
