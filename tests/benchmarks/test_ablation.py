"""The ablation as a command: each phase can be switched off, and is on again afterwards."""

import pytest

from benchmarks import ablation
from controller.planner import strategy


def test_every_phase_is_switched_off_and_on_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "CLUSTERS", {"one": (((2, 2, 16),), 1, ("priorities",))})
    before, lines = vars(strategy)["exchange"], list[str]()
    ablation.main(["--sets", "one"], show=lines.append)

    assert [line.split(" | ")[1] for line in lines] == list(ablation.PHASES)
    assert vars(strategy)["exchange"] is before
