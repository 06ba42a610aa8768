"""The state directory admits one agent."""

import errno
import os
from pathlib import Path

import pytest

from nodeagent.handover.files import hold_lock
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


def test_a_lock_that_an_earlier_version_left_open_to_all_is_for_its_user_alone(tmp_path: Path) -> None:
    """Another user who may open the file could keep a supervisor or a device plugin from starting."""
    path = tmp_path / "plugin.lock"
    path.touch()
    path.chmod(0o644)
    lock = hold_lock(path)
    assert lock is not None
    with lock:
        assert path.stat().st_mode & 0o777 == 0o600
        assert hold_lock(path) is None
