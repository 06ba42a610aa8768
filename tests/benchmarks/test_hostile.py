"""The benchmark of hostile pods: what bound pods cost there, and that the ordinary pod is served."""

import pytest

from benchmarks import hostile
from benchmarks.hostile import ROWS, measure
from controller.planner.effort import WORK
from tests.drawn import sparing

SMALL = [
    name
    for name, row in ROWS.items()
    if (row.nodes, row.serving, row.mix) == (100, 20, "plain") and not row.all_compared
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    sparing(
        [name for name in SMALL if "3,000" not in name],
        *("60 pods, 20,000 values each", "600 pods that keep off themselves", "300 pods that keep off themselves"),
    ),
)
def test_four_times_the_bound_pods_are_no_more_work(name: str) -> None:
    few, many = (measure(name, ROWS[name], bound) for bound in (500, 2_000))

    assert (few.ordinary, many.ordinary) == (True, True)
    assert (few.cut_short, many.cut_short) == ("", "")
    assert many.work <= 1.5 * few.work < WORK


def test_the_command_prints_a_line_for_each_number_of_bound_pods(capsys: pytest.CaptureFixture[str]) -> None:
    assert hostile.main(["--rows", "one plain", "--bound", "10,40", "--calls"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert [line.split(" | ")[:2] for line in lines[2:]] == [["| one plain pod", "10"], ["| one plain pod", "40"]]
    assert all(line.endswith("| – | placed |") for line in lines[2:])
