"""The planner's benchmark as a command: its keys, and what it refuses."""

import json

import pytest

pytest.importorskip("benchmarks.oracle", reason="the exact bound needs the benchmark extra")

from benchmarks import planner
from benchmarks.instances import MIXES


@pytest.mark.parametrize("mix", sorted(MIXES))
def test_prints_what_was_found_as_json(mix: str, capsys: pytest.CaptureFixture[str]) -> None:
    planner.main(["--nodes", "2", "--gpus", "2", "--pods", "9", "--seed", "3", "--mix", mix, "--repeat", "1", "--json"])

    found = json.loads(capsys.readouterr().out)
    assert {"plan_seconds", "placed", "bound", "gap", "gpus_changed", "destroyed", "peak_mib"} <= found.keys()
    assert found["placed"] <= found["bound"] <= found["own_bound"]
    assert found["gap"] == pytest.approx(1 - found["placed"] / found["bound"], abs=1e-4)
    assert sum(found["placed_by_phase"].values()) == found["placed"]
    assert found["placed_by_phase"].keys() <= found["seconds_by_phase"].keys()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--repeat", "0"], "argument --repeat: 0 is less than 1"),
        (["--pods", "-1"], "argument --pods: -1 is less than 0"),
        (["--nodes", "many"], "argument --nodes: invalid number value: 'many'"),
        (["--mix", "spiced"], "argument --mix: invalid choice: 'spiced'"),
    ],
)
def test_refuses_what_cannot_be_measured(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        planner.main(arguments)

    assert ended.value.code == 2
    assert message in capsys.readouterr().err
