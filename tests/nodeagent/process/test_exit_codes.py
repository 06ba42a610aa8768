"""The exit codes by which a kubelet, or a person, knows what `gpuplan-nodeagent` ended for. Without a process."""

from pathlib import Path

import pytest

from kube import clients
from nodeagent import __main__ as command
from sandbox.driver.machine import create
from tests import faults
from tests.builders.models import H100


class Ended:
    """In the place of an agent's process: it ends at once, for a reason or for none."""

    why = ""

    def __init__(self, *_: object) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def run(self) -> str:
        return self.why


@pytest.mark.parametrize(("why", "code"), [("", 0), ("the NVIDIA driver was replaced", 3)])
def test_only_an_agent_that_cannot_go_on_asks_for_another_one(
    monkeypatch: pytest.MonkeyPatch, why: str, code: int
) -> None:
    monkeypatch.setattr(Ended, "why", why)
    monkeypatch.setattr(command, "AgentProcess", Ended)
    monkeypatch.setattr(command, "call_when_ended", lambda _stop: None)
    monkeypatch.setattr(command, "raise_file_limit", lambda: None)
    monkeypatch.setattr(clients, "load", lambda *_args, **_options: None)
    assert command.main(["--node-name", "n"]) == code


def test_a_probe_of_a_driver_that_is_gone_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = create(tmp_path / "machine.json", [(H100, {})], "seed")
    undo = faults.install(store)
    try:
        assert command.main(["probe"]) == 0
        assert capsys.readouterr().err == ""
        with store.writing() as machine:
            machine["driver_loaded"] = False
        assert command.main(["probe"]) == 3
        assert "Driver Not Loaded" in capsys.readouterr().err
    finally:
        undo()
