"""Replaying nos' recorded workloads: the form of the file, the replay itself, and when our planner counts as behind."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.nos import baseline as nos_baseline
from benchmarks.nos.baseline import main
from benchmarks.nos.cluster import Card, ImpossibleError, card_model, server
from benchmarks.nos.workloads import cluster_of, slices_of
from benchmarks.replay import BrokenError, applied, bound
from controller.model.results import NodeChange, PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import MigDesired, PlannedGpu, PlannerOptions
from controller.planning import plan
from partitioning.layouts import Instance, Layout

DATA = Path(__file__).parent / "data" / "nos_baseline.json"
A100 = card_model("NVIDIA-A100-40GB-SXM4")


def workload(**more: Any) -> dict[str, Any]:
    """Two MIG GPUs with a whole instance each, and two pods that want halves."""
    return {
        "title": "small",
        "kind": "mig",
        "nodes": [
            {"name": "n0", "model": A100.product, "count": 2, "status": {"0-7g.40gb-free": 1, "1-7g.40gb-free": 1}}
        ],
        "pods": [{"name": f"p{n}", "req": {"nvidia.com/mig-3g.20gb": "1", "cpu": "1"}} for n in range(2)],
        **more,
    }


def written(folder: Path, *workloads: dict[str, Any]) -> str:
    path = folder / "workloads.json"
    path.write_text(json.dumps({"about": "", "workloads": list(workloads)}))
    return str(path)


def test_our_planner_is_nowhere_behind_on_recorded_workloads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DATA)]) == 0

    out = capsys.readouterr().out
    assert "3 workloads, ours is behind in 0" in out
    assert "placed 49 54 59 ..." in out  # nos on the third


def test_json_has_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DATA), "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["behind"] == []
    first = found["workloads"][0]
    assert first["ours"]["placed"] == first["nos"]["placed"] == [0, 8]
    assert (first["ours"]["gpus_recut"], first["ours"]["destroyed"], first["ours"]["nodes_changed"]) == ([2], 2, [2])
    assert first["nos"]["gpus_recut"] == {"Min": 6, "Mean": 6, "Max": 6}
    assert first["nos"]["destroyed"] == 6


@pytest.mark.parametrize(
    ("nos", "words"),
    [
        (
            {"nos_multi_cycle": [{"placed_after_each_cycle": [0, 3], "devices_destroyed": 1}]},
            "placed after cycle 1, nos 3",
        ),
        ({"nos_multi_cycle": [{"placed_after_each_cycle": [0, 2], "devices_destroyed": 0}]}, "1 partitions destroyed"),
    ],
)
def test_where_our_planner_is_behind_the_exit_code_shows_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, nos: dict[str, Any], words: str
) -> None:
    assert main([written(tmp_path, workload(**nos), workload(title="fine"))]) == 1

    out = capsys.readouterr().out
    assert words in out
    assert "2 workloads, ours is behind in 1: small" in out


def test_what_fewer_pods_cost_is_not_compared(tmp_path: Path) -> None:
    """nos placed one pod only, and destroyed nothing for it."""
    run = {"placed_after_each_cycle": [0, 1, 1], "devices_destroyed": 0}
    single = {"pods_placeable": {"Max": 1}, "gpus_changed": {"Min": 0, "Max": 0}}

    assert main([written(tmp_path, workload(nos_multi_cycle=[run], nos=single))]) == 0


def test_hardware_that_does_not_exist_is_not_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = workload(nodes=[{"name": "n0", "model": "NVIDIA-Z9", "count": 1, "status": {}}])

    assert main([written(tmp_path, broken)]) == 0
    assert "small: not run: there is no GPU model NVIDIA-Z9" in capsys.readouterr().out


def test_cycles_go_on_while_there_is_something_to_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner that serves one pod at a time."""

    def one_by_one(snapshot: Snapshot, options: PlannerOptions | None = None) -> PlanningResult:
        return plan(replace(snapshot, pending=snapshot.pending[:1]), options)

    monkeypatch.setattr(nos_baseline, "plan", one_by_one)
    run = nos_baseline.replay(cluster_of(workload()), cycles=8)

    assert run.placed == (0, 1, 2)
    assert [cost.gpus for cost in run.costs] == [1, 1]


def test_status_keys() -> None:
    used, free = slices_of({"0-1g.5gb-used": 2, "11-1g.24gb-me-free": 1, "0-10gb-free": 3})

    assert used == {0: {"1g.5gb": 2}}
    assert free == {11: {"1g.24gb-me": 1}, 0: {"10gb": 3}}


@pytest.mark.parametrize(
    ("used", "free", "places"),
    [
        ({"1g.5gb": 2}, {}, "1g.5gb at 5, 1g.5gb at 6"),
        ({"1g.5gb": 1, "3g.20gb": 1}, {}, "1g.5gb at 3, 3g.20gb at 4"),
        ({"3g.20gb": 1}, {"4g.20gb": 1}, "3g.20gb at 4"),
        ({"1g.5gb": 1}, {"3g.20gb": 1, "2g.10gb": 1}, "1g.5gb at 6"),
        ({"1g.5gb": 4}, {"3g.20gb": 1}, "1g.5gb at 0, 1g.5gb at 1, 1g.5gb at 2, 1g.5gb at 3"),
        ({"7g.40gb": 1}, {}, "7g.40gb at 0"),
    ],
)
def test_slices_in_use_sit_at_the_highest_start_that_leaves_room_for_the_others(
    used: dict[str, int], free: dict[str, int], places: str
) -> None:
    (gpu,) = server("n", "mig", [Card(index=0, model=A100, used=used, free=free)]).plan.gpus
    held = [part for part in gpu.partitions if part.used]

    assert ", ".join(f"{part.profile} at {part.start}" for part in held) == places
    assert len(gpu.partitions) == sum(used.values()) + sum(free.values())


@pytest.mark.parametrize(
    ("kind", "used", "words"),
    [
        ("mig", {"1g.5gb": 8}, "cannot hold 8 x 1g.5gb"),
        ("mig", {"4g.20gb": 1, "7g.40gb": 1}, "cannot hold"),
        ("mig", {"1g.6gb": 1}, "has no profile 1g.6gb"),
        ("mig", {"1g.5gb": -1}, "holds -1 slices"),
        ("mps", {"20gb": 3}, "MiB together"),
        ("mps", {"0gb": 3}, "is no MPS slice"),
    ],
)
def test_cards_that_cannot_exist(kind: str, used: dict[str, int], words: str) -> None:
    with pytest.raises(ImpossibleError, match=words):
        server("n", kind, [Card(index=0, model=A100, used=used, free={})])


def test_profiles_go_by_the_names_that_the_file_uses() -> None:
    requests = [{"name": "p", "req": {"nvidia.com/mig-7g.79gb": "1"}}]
    old = workload(nodes=[{"name": "n0", "model": "NVIDIA-A100-80GB-PCIe", "count": 1, "status": {}}], pods=requests)

    assert nos_baseline.replay(cluster_of(old), cycles=1).placed == (0, 1)


def change(snapshot: Snapshot, *instances: Instance) -> PlanningResult:
    gpu = snapshot.plans[0].gpus[0]
    item = PlannedGpu(index=0, uuid=gpu.uuid, desired=MigDesired(layout=Layout.of(instances)))
    return PlanningResult(node_changes=(NodeChange(node="n0", gpus=(item,), changed=(0,)),))


def test_a_replay_refuses_what_cannot_come_true() -> None:
    status = {"0-3g.20gb-used": 1}
    snapshot = cluster_of(workload(nodes=[{"name": "n0", "model": A100.product, "count": 1, "status": status}]))
    half, small = Instance(start=0, size=4, profile="4g.20gb"), Instance(start=2, size=1, profile="1g.5gb")

    with pytest.raises(BrokenError, match="overlap"):
        applied(snapshot, change(snapshot, half, small))
    with pytest.raises(BrokenError, match="is in use and not in the plan"):
        applied(snapshot, change(snapshot, half))
    with pytest.raises(BrokenError, match="n0 has no partition for"):
        bound(snapshot, {"pending-0": "n0"})


def test_what_a_workload_leaves_out_is_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = {"nodes": [{"model": "A30", "count": "2"}], "pods": [{"req": {"nvidia.com/mig-1g.6gb": 1}}]}
    runs = [{"placed_after_each_cycle": [0, 1]}, {"placed_after_each_cycle": []}, {}]
    nos = {"nos_multi_cycle": runs, "nos": {"pods_placeable": 1, "gpus_changed": {"Min": 1}, "plan_ms": {"Mean": 3}}}

    assert main([written(tmp_path, bare, {**bare, **nos}, {"title": "empty"}), "--json"]) == 0

    bare_one, with_nos, empty = json.loads(capsys.readouterr().out)["workloads"]
    assert (bare_one["ours"]["placed"], bare_one["nos"]["placed"]) == ([0, 1], None)
    assert (with_nos["nos"]["placed"], with_nos["nos"]["destroyed"], with_nos["nos"]["gpus_recut"]["Max"]) == (
        [0, 1],
        None,
        1,
    )
    assert empty["ours"]["placed"] == [0]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (3, "3 is no workload"),
        ({"nodes": [{}]}, "nodes[0].model is missing"),
        ({"nodes": [{"model": "A30", "count": "x"}]}, "nodes[0].count is 'x', a whole number is needed"),
        ({"nodes": [{"model": "A30", "status": {"1g": 1}}]}, "status: 1g is not understood: write 0-1g.5gb-used"),
        ({"nodes": [{"model": "A30", "status": {"1-1g.6gb-used": 1}}]}, "speaks of GPU 1, there are 1"),
        ({"nodes": [{"name": "n", "model": "A30"}] * 2}, "nodes: two are called n"),
        ({"pods": {}}, "pods is {}, a list is needed"),
        ({"pods": [{"req": {"nvidia.com/mig-1g.6gb": "one"}}]}, "one"),
        ({"kind": "vgpu"}, "kind is 'vgpu': write mig or mps"),
        ({"nos": {"plan_ms": "fast"}}, "nos.plan_ms is 'fast'"),
        ({"nos_multi_cycle": [{"placed_after_each_cycle": 7}]}, "placed_after_each_cycle is 7, a list is needed"),
    ],
)
def test_a_malformed_workload_is_not_run(
    broken: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([written(tmp_path, broken, workload())]) == 0

    printed = capsys.readouterr().out
    assert "workload 0: not run: " in printed
    assert words in printed


@pytest.mark.parametrize("content", ["", "[]", '{"workloads": 3}'])
def test_a_file_of_another_form_is_refused(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "workloads.json"
    path.write_text(content)

    assert main([str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_plan_that_cannot_come_true_is_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise BrokenError("GPU 0: nonsense")

    monkeypatch.setattr(nos_baseline, "applied", broken)

    assert main([written(tmp_path, workload())]) == 1
    assert "BEHIND: a plan that cannot come true: GPU 0: nonsense" in capsys.readouterr().out
