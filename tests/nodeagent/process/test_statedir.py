"""The state directory admits one agent."""

from pathlib import Path

import pytest

from nodeagent.statedir import AnotherAgentError, StateDir


def test_one_agent_per_state_directory(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state")
    lock = state.lock()
    with pytest.raises(AnotherAgentError, match="is held by process"):
        state.lock()

    lock.release()
    state.lock().release()
