"""The state directory admits one agent."""

import errno
import os
from pathlib import Path

import pytest

from nodeagent.statedir import AnotherAgentError, StateDir


def test_one_agent_per_state_directory(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state")
    lock = state.lock()
    with pytest.raises(AnotherAgentError, match="is held by process"):
        state.lock()

    lock.close()
    state.lock().close()


def test_an_agent_starts_on_a_full_disk_and_is_alone_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    state = StateDir(tmp_path / "state")
    monkeypatch.setattr(os, "pwrite", full)
    lock = state.lock()
    with pytest.raises(AnotherAgentError, match="is held by process"):
        state.lock()
    lock.close()
