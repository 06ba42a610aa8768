"""The stand-in of the config-manager, held to the cases that tests/e2e holds the real program to; no settings."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from sandbox.nvidia_plugin.config_manager import ConfigManager
from sandbox.nvidia_plugin.projection import ConfigMapVolume
from tests.sandbox.nvidia_plugin.config_manager_cases import CASES, NO_PROCESS, Case, State, do


class StandIn:
    """It acts at once: nothing has to be awaited."""

    def __init__(self, folder: Path) -> None:
        self.volume = ConfigMapVolume(folder / "available")
        self.chosen = folder / "config.yaml"
        self.value = ""
        self.plugin_runs = False
        self.process = ConfigManager(
            self.volume,
            self.chosen,
            signal=lambda: None if self.plugin_runs else NO_PROCESS,
        )

    def project(self, data: Mapping[str, str]) -> None:
        self.volume.project(data)

    def label(self, value: str | None) -> None:
        self.value = value or ""
        self.process.observe(self.value)

    def plugin(self, runs: bool) -> None:
        self.plugin_runs = runs

    def start(self) -> None:
        self.process.start()
        self.process.observe(self.value)

    def run_once(self) -> None:
        self.process.run_once()

    def await_state(self, expected: State) -> None:
        target = Path(os.readlink(self.chosen)) if self.chosen.is_symlink() else Path()
        behind = self.volume.folder / target.name if target.name != "null" else target
        text = behind.read_text() if target.name and behind.exists() else None
        ended = self.process.ended
        if ended is not None:
            ended = ended.replace(str(self.chosen), "{chosen}").replace("/available-configs", "{mounted}")
        assert State(key=target.name, text=text, sent=self.process.sent, ended=ended) == expected

    def close(self) -> None:
        self.process.stop()


@pytest.mark.parametrize("case", [case for case in CASES if not case.settings], ids=lambda case: case.name)
def test_config_manager_stand_in(case: Case, tmp_path: Path) -> None:
    do(StandIn(tmp_path), case)
