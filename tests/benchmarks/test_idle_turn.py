"""The benchmark of the idle turn runs, and its cluster has nothing to do."""

import pytest

from benchmarks.idle_turn import main


@pytest.mark.parametrize("slices", ["0", "2"])
def test_prints_every_step_in_both_columns(slices: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--nodes", "3", "--pods", "4", "--slices", slices])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 nodes, 4 pending pods; ms per turn"
    steps = ["state", "lifecycle", "agents", "labels", "nominator", "ways", "report", "sum"]
    assert [line.split()[0] for line in lines[2:]] == steps
    assert all(len(line.split()) == 3 for line in lines[2:])
