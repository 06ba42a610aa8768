"""The judge of planner changes: what is beyond the tolerance fails, and the same planner never does."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import ablation, judge
from benchmarks.ablation import Measured
from controller.planning import plan

BEFORE = Measured(levels=[(100, 900), (20,)], destroyed=100)


@pytest.mark.parametrize(
    ("now", "problems"),
    [
        (Measured(levels=[(100, 900), (20,)], changed=1000, destroyed=100), []),
        (Measured(levels=[(100, 897), (20,)], destroyed=105), []),
        (Measured(levels=[(100, 900), (17,)], destroyed=1), []),
        (Measured(levels=[(110, 894), (20,)], destroyed=100), []),
        (
            Measured(levels=[(100, 896), (20,)], destroyed=100),
            ["4 of 1020 pods fewer: at most 0.3% may be lost"],
        ),
        (
            Measured(levels=[(100, 900), (20,)], destroyed=106),
            ["106 instead of 100 idle partitions destroyed: at most 5% more may be"],
        ),
        (Measured(levels=[(90, 930), (20,)], destroyed=100), ["cluster 0, level 0: 90 pods instead of 100"]),
        (Measured(levels=[(100, 920), (16,)], destroyed=100), ["cluster 1, level 0: 16 pods instead of 20"]),
    ],
)
def test_tolerance(now: Measured, problems: list[str]) -> None:
    assert list(judge.too_much(BEFORE, now)) == problems


def test_small_set_may_destroy_some_more() -> None:
    before = Measured(levels=[(20,)], destroyed=2)
    assert list(judge.too_much(before, replace(before, destroyed=5))) == []
    assert list(judge.too_much(before, replace(before, destroyed=6)))


def test_the_first_run_writes_and_the_next_ones_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "CLUSTERS", {"one": (((2, 2, 16),), 1, ("priorities",))})
    file, lines = tmp_path / "before.json", list[str]()
    first = [str(file), "--seed", "7", "--sets", "one"]

    assert judge.main(first, show=lines.append) == 0
    assert judge.main([str(file)], show=lines.append) == 0
    assert len(lines) == 2

    monkeypatch.setattr(ablation, "plan", lambda snapshot: plan(replace(snapshot, pending=())))
    assert judge.main([str(file)], show=lines.append) == 1
    assert any("fewer" in line for line in lines[2:])
