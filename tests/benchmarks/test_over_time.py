"""Days of jobs in virtual time: known results of small traces for each policy, foreign files, and what is refused."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.over_time.__main__ import FIXED_WINDOW, POLICIES, main, replay
from benchmarks.over_time.cluster import Cluster
from benchmarks.over_time.jobs import Job, Size, TraceError, read_size
from benchmarks.over_time.timeline import Delays
from benchmarks.over_time.workloads import MAKERS, make
from controller.config.settings import Settings
from partitioning.layouts import Instance, Layout
from tests.builders.models import H100
from tests.drawn import sparing

HEAD = "name,arrival_ms,profile,duration_ms,priority"
ONE = "nodes=1,gpus=1,model=H100-80GB"
TWO = "nodes=1,gpus=2,model=H100-80GB"
WAIT_KEYS = ["n", "mean", "p50", "p95", "p99", "max"]
KEYS = {"policy", "jobs", "unfinished", "wait", "gpc_use", "gpc_use_while_jobs_arrive", "makespan_s", "seeds"}
KEYS |= {"instances_created", "instances_deleted", "gpus_changed", "passes", "plan_seconds"}

Json = dict[str, Any]


def written(folder: Path, *lines: str) -> str:
    path = folder / "trace.csv"
    path.write_text("\n".join([HEAD, *lines]) + "\n")
    return str(path)


def replayed(folder: Path, policy: str, cluster: str, *lines: str, more: tuple[str, ...] = ()) -> Json:
    shown: list[str] = []
    arguments = ["--jobs", written(folder, *lines), "--cluster", cluster, "--policy", policy, "--json", *more]
    assert main(arguments, lambda line: shown.append(str(line))) == 0
    (found,) = (json.loads(line) for line in shown)
    return dict(found)


def waits(found: Json) -> dict[str, float]:
    return {name: one["mean"] for name, one in found["wait"].items() if name != "all"}


WHOLE_THEN_SMALL = ("a,0,7g.80gb,100000", "b,30000,1g.10gb,50000")


@pytest.mark.parametrize(
    ("policy", "whole", "small"),
    [
        # Cut in 0.7 s and shown at the tick of 10 s; then free at 110 s, cut in 1.1 s and shown at 120 s.
        ("first-fit", 10.0, 90.0),
        ("best-fit", 10.0, 90.0),
        ("best-fit-2", 10.0, 90.0),
        ("least-spoiled", 10.0, 90.0),
        # Planned after an idle second, 1 s and 111 s: the window is over before the tick.
        ("gpuplan", 10.0, 90.0),
        ("nos", 10.0, 90.0),
    ],
)
def test_small_pod_waits_for_the_whole_gpu_and_for_its_instance(
    tmp_path: Path, policy: str, whole: float, small: float
) -> None:
    found = replayed(tmp_path, policy, ONE, *WHOLE_THEN_SMALL)
    assert waits(found) == {"7g.80gb": whole, "1g.10gb": small}
    assert found["unfinished"] == 0
    assert found["makespan_s"] == 30 + small + 50
    assert found["gpc_use"] == round((7 * 100 + 50) / (7 * found["makespan_s"]), 4)
    assert found["instances_deleted"] == 1


def test_without_a_tick_the_same_pods_wait_seconds(tmp_path: Path) -> None:
    more = ("--write-allocatable", "--create", "0", "--delete", "0")
    found = replayed(tmp_path, "gpuplan", ONE, *WHOLE_THEN_SMALL, more=more)
    # Alone for 0.25 s, then 0.1 s of the agent, 0.15 s until the count is written; free at 100.5 s, then a window.
    assert waits(found) == {"7g.80gb": 0.5, "1g.10gb": 71.75}


@pytest.mark.parametrize(("policy", "whole", "small"), [("gpuplan", 10.0, 100.0), ("nos", 20.0, 110.0)])
def test_settings_of_a_file_are_those_of_the_replay(tmp_path: Path, policy: str, whole: float, small: float) -> None:
    """The first pod after ten idle seconds, or at once; the second ten seconds after its GPU is free."""
    settings = tmp_path / "controller.yaml"
    settings.write_text("batchWindowIdleSeconds: 10\nbatchWindowTimeoutSeconds: 60\n")
    found = replayed(tmp_path, policy, ONE, *WHOLE_THEN_SMALL, more=("--settings", str(settings)))
    assert waits(found) == {"7g.80gb": whole, "1g.10gb": small}


@pytest.mark.parametrize("policy", ["gpuplan", "nos"])
def test_freed_instance_goes_to_a_waiting_pod_of_its_profile_at_once(tmp_path: Path, policy: str) -> None:
    found = replayed(tmp_path, policy, ONE, "a,0,7g.80gb,100000", "b,30000,7g.80gb,100000")
    assert found["wait"]["7g.80gb"]["max"] == 80.0
    assert found["instances_created"] == 1


class Idle:
    """A controller that only the test moves."""

    def turn(self) -> float | None:
        return None

    def pod_changed(self, _: int) -> None: ...

    def node_changed(self, _: str) -> None: ...

    plan_changed = node_changed


@pytest.mark.parametrize(("priority", "first"), [(0, 1), (5, 0)])
def test_nomination_keeps_an_instance_from_pods_that_are_no_more_urgent(priority: int, first: int) -> None:
    """The older pod would be bound first; the instance is made for the younger one."""
    jobs = [Job(name=name, arrival=at, profile="7g.80gb", duration=5) for at, name in ((0.0, "a"), (1.0, "b"))]
    jobs[0] = replace(jobs[0], priority=priority)
    cluster = Cluster(jobs, Size(nodes=1, gpus=1, model=H100), Delays(), seed=1)
    cluster.controller = Idle()
    layout = Layout.of([Instance(start=0, size=8, profile="7g.80gb")])

    def change() -> None:
        cluster.change("node-0000", 0, layout)
        cluster.nominate(1, "node-0000")

    cluster.timeline.at(2.0, change)
    started = cluster.run(None).started
    assert min(started, key=started.__getitem__) == first
    assert sorted(started.values()) == [10, 15]


def test_withdrawn_instance_is_given_to_no_pod() -> None:
    """It goes at 12 s, when its pod has ended and before another of its profile comes; the Node shows it still."""
    jobs = [Job(name=f"j{at}", arrival=at, profile="1g.10gb", duration=1) for at in (0.0, 13.0)]
    cluster = Cluster(jobs, Size(nodes=1, gpus=1, model=H100), Delays(), seed=1)
    cluster.controller = Idle()
    cluster.timeline.at(
        1.0, lambda: cluster.change("node-0000", 0, Layout.of([Instance(start=0, size=1, profile="1g.10gb")]))
    )
    cluster.timeline.at(12.0, lambda: cluster.change("node-0000", 0, Layout.of([])))
    assert cluster.run(None).started == {0: 10}


def test_first_fit_spoils_a_gpu_that_best_fit_leaves_whole(tmp_path: Path) -> None:
    """GPU 0 loses its 4g first, then a 3g fits there; first fit puts it where the 4g was, on the lowest start."""
    jobs = ("a,0,4g.40gb,50000", "b,20000,1g.10gb,900000", "c,200000,1g.10gb,900000", "d,400000,4g.40gb,10000")
    first = replayed(tmp_path, "first-fit", ONE, *jobs)
    best = replayed(tmp_path, "best-fit", ONE, *jobs)
    assert waits(first)["4g.40gb"] > 300
    assert waits(best)["4g.40gb"] < 10


@pytest.mark.parametrize("policy", ["best-fit", "best-fit-2", "least-spoiled", "nos"])
def test_small_pods_that_come_one_by_one_leave_a_gpu_for_a_whole_one(tmp_path: Path, policy: str) -> None:
    jobs = [f"a{n},{60_000 * n},1g.10gb,900000" for n in range(3)]
    found = replayed(tmp_path, policy, TWO, *jobs, "b,300000,7g.80gb,10000")
    assert waits(found)["7g.80gb"] <= 30


def test_reservations_end_the_wait_of_a_large_pod_behind_small_ones(tmp_path: Path) -> None:
    small = [f"a{n:02},{150_000 * n},3g.40gb,400000" for n in range(40)]
    jobs = (*small, "b,700000,7g.80gb,10000")
    without = replayed(tmp_path, "best-fit", ONE, *jobs)
    reserved = replayed(tmp_path, "best-fit-2", ONE, *jobs)
    assert waits(without)["7g.80gb"] > 5000
    assert waits(reserved)["7g.80gb"] < 1100


def test_least_spoiled_heeds_what_is_requested(tmp_path: Path) -> None:
    """Where only 1g and 7g come, a second 1g next to the first spoils nothing; best fit counts all profiles alike."""
    jobs = [f"a{n},{60_000 * n},1g.10gb,900000" for n in range(7)]
    found = replayed(tmp_path, "least-spoiled", TWO, *jobs, "b,500000,7g.80gb,10000")
    assert waits(found)["7g.80gb"] <= 10


def test_nos_makes_the_whole_geometry_and_again_all_that_is_idle(tmp_path: Path) -> None:
    found = replayed(tmp_path, "nos", ONE, "a,0,3g.40gb,900000", "b,60000,1g.10gb,10000")
    assert found["gpus_changed"] <= 2
    assert found["instances_created"] > 2


@pytest.mark.parametrize("policy", POLICIES)
def test_urgent_pod_is_first(tmp_path: Path, policy: str) -> None:
    jobs = ("a,0,7g.80gb,100000", "b,30000,7g.80gb,100000,0", "c,40000,7g.80gb,50000,5")
    found = replayed(tmp_path, policy, ONE, *jobs)
    assert found["makespan_s"] == found["wait"]["7g.80gb"]["max"] + 30 + 100


@pytest.mark.parametrize("policy", POLICIES)
def test_job_that_cannot_run_waits_until_the_horizon(tmp_path: Path, policy: str) -> None:
    found = replayed(tmp_path, policy, ONE, "a,0,9g.90gb,1000", "b,0,1g.10gb,1000", more=("--horizon", "500"))
    assert found["wait"]["9g.90gb"]["max"] == 500
    assert found["unfinished"] == 1
    assert replayed(tmp_path, policy, ONE, "a,0,9g.90gb,1000", "b,0,1g.10gb,1000")["unfinished"] == 1


def test_output_has_the_keys_that_are_promised(tmp_path: Path) -> None:
    found = replayed(tmp_path, "gpuplan", ONE, *WHOLE_THEN_SMALL, more=("--seeds", "1,2"))
    assert found.keys() >= KEYS
    assert list(found["wait"]["all"]) == WAIT_KEYS
    assert found["seeds"] == [1, 2]
    assert found["least"]["wait"]["all"]["mean"] <= found["wait"]["all"]["mean"]
    assert found["plan_seconds"] is None
    assert replayed(tmp_path, "gpuplan", ONE, *WHOLE_THEN_SMALL, more=("--measure",))["plan_seconds"] > 0


def test_same_seed_gives_the_same_bytes() -> None:
    command = [sys.executable, "-m", "benchmarks.over_time", "--jobs", "bursts", "--cluster", TWO, "--json"]
    runs = [
        subprocess.run(
            [*command, "--policy", ",".join(POLICIES), "--horizon", "4500"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].splitlines()) == len(POLICIES)


@pytest.mark.parametrize("name", sparing([*MAKERS], "turning", "migbench"))
def test_workloads_run_and_are_shown_for_people(name: str) -> None:
    shown: list[str] = []
    arguments = ["--jobs", name, "--cluster", TWO, "--policy", "first-fit,gpuplan", "--horizon", "4000"]
    assert main([*arguments, "--seeds", "1,2"], lambda line: shown.append(str(line))) == 0
    assert shown[2].startswith("| first-fit | ")
    assert "[" in shown[2]
    assert shown[3].startswith("| gpuplan | ")


@pytest.mark.parametrize("name", ["steady", "migbench", "turning"])
def test_load_is_the_work_that_comes_per_second(name: str) -> None:
    size = Size(nodes=4, gpus=4, model=H100)
    workload = make(f"{name}:0.8", size, seed=3)
    assert workload is not None
    slices = {spec.name: spec.compute_slices for spec in H100.profiles}
    work = sum(slices[job.profile] * job.duration for job in workload.jobs)
    assert work / workload.jobs[-1].arrival / size.capacity == pytest.approx(0.8, rel=0.12)


def test_foreign_pod_list_is_read(tmp_path: Path) -> None:
    path = tmp_path / "openb.csv"
    path.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p0,6000,12288,1,460,,LS,Running,100,400,100\n"
        "p1,6000,12288,8,1000,,LS,Running,100,400,100\n"
        "p2,6000,12288,1,100,,LS,Running,200,300,200\n"
    )
    shown: list[str] = []
    assert main(["--jobs", str(path), "--cluster", ONE, "--json"], lambda line: shown.append(str(line))) == 0
    assert [set(json.loads(line)["wait"]) for line in shown] == [{"all", "1g.10gb", "2g.20gb"}] * 3


def test_slices_are_replayed_on_gpus_without_mig_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("name, arrival_ms, profile, duration_ms\na, 0, 24gb, 5000\nb, 10, 10gb, 5000\nc, 0, 99gb, 5\n")
    for jobs, unfinished in ((str(trace), 1), ("steady:0.3", 0)):
        given = ["--jobs", jobs, "--cluster", "nodes=1,gpus=2,model=L40S,partitioning=mps", "--seeds", "1"]
        assert main([*given, "--policy", "first-fit", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["unfinished"] == unfinished


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("a,-1,1g.10gb,10", "line 3: arrival_ms '-1' is no number"),
        ("a,x,1g.10gb,10", "line 3: arrival_ms 'x' is no number"),
        ("a,nan,1g.10gb,10", "line 3: arrival_ms 'nan' is no number"),
        ("a,0,1g.10gb,", "line 3: duration_ms '' is empty"),
        ("a,0,1g.10gb", "line 3: duration_ms '' is empty"),
        ("a,0,1g.10gb,1e400", "line 3: duration_ms '1e400' is no number"),
        ("a,0,nvidia.com/gpu,10", "line 3: profile 'nvidia.com/gpu' is no MIG profile"),
        (",0,1g.10gb,10", "line 3: name '' is empty"),
        ("ok,0,1g.10gb,10", "line 3: name 'ok' is on line 2, too"),
        ("a,0,1g.10gb,10,1,2", "line 3: has more fields than the first line has columns"),
        ("a,0,1g.10gb,10,high", "line 3: priority 'high' is no whole number"),
        ("a,0,1g.10gb,10,99999999999", "line 3: priority '99999999999' is no whole number"),
    ],
)
def test_bad_line_is_refused_with_line_and_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, sentence: str
) -> None:
    assert main(["--jobs", written(tmp_path, "ok,0,1g.10gb,10,1", line)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--jobs", "missing.csv"), "missing.csv: cannot be read: No such file or directory"),
        (("--jobs", "steady:much"), "the load in 'steady:much' is no number"),
        (("--jobs", "steady", "--policy", "magic"), "--policy: 'magic' is not understood"),
        (("--jobs", "steady", "--seeds", "1,1"), "--seeds: '1,1' is not understood"),
        (("--jobs", "steady", "--cluster", "nodes=0"), "--cluster: nodes is '0'"),
        (("--jobs", "steady", "--cluster", "model=T4"), "--cluster: model 'T4' is unknown or has no MIG"),
        (("--jobs", "steady", "--cluster", "model=T9,partitioning=mps"), "--cluster: model 'T9' is unknown: give one"),
        (("--jobs", "steady", "--cluster", "partitioning=vgpu"), "--cluster: partitioning is 'vgpu': give mig or mps"),
        (
            ("--jobs", "steady", "--cluster", "partitioning=mps", "--policy", "nos"),
            "give some of gpuplan,first-fit,best-fit",
        ),
        (("--jobs", "steady", "--horizon", "0"), "--horizon: 0 s is before the first job comes"),
        (("--jobs", "steady", "--settings", "missing.yaml"), "missing.yaml: No such file or directory"),
        (("--jobs", "stuck", "--cluster", "model=A30-24GB"), "has no profile of which just one fits"),
    ],
)
def test_bad_argument_is_refused_with_a_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    assert main(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_profiles_are_read_as_nvidia_smi_prints_them(tmp_path: Path) -> None:
    jobs = ("a,0,MIG 1g.10gb,1000", "b,0,1g.10gb+me,1000", "c,0,1g.24gb+me.all,1000", "d,0,1g.24gb-me,1000")
    found = replayed(tmp_path, "gpuplan", ONE, *jobs, more=("--horizon", "300"))
    assert {name for name in found["wait"]} == {"all", "1g.10gb", "1g.10gb+me", "1g.24gb+me.all", "1g.24gb-me"}
    assert found["unfinished"] == 2


SHARED = "nodes=1,gpus=2,partitioning=mps"


@pytest.mark.parametrize("policy", ["gpuplan", "first-fit", "best-fit"])
def test_slices_that_come_one_by_one_leave_a_shared_gpu_for_a_large_one(tmp_path: Path, policy: str) -> None:
    jobs = [f"a{n},{60_000 * n},10gb,900000" for n in range(4)]
    found = replayed(tmp_path, policy, SHARED, *jobs, "b,300000,80gb,10000", "c,330000,1g.10gb,1000", "d,0,85gb,1000")
    assert found["wait"]["80gb"]["max"] <= 30
    assert found["unfinished"] == 2
    assert found["gpus_changed"] == 5
    assert found["gpc_use"] == pytest.approx((4 * 10 * 900 + 80 * 10) / (2 * 84 * found["makespan_s"]), rel=0.2)


@pytest.mark.parametrize("policy", ["gpuplan", "first-fit", "best-fit"])
def test_idle_slice_is_taken_as_it_is_and_goes_where_its_memory_is_needed(tmp_path: Path, policy: str) -> None:
    cluster = "nodes=1,gpus=1,partitioning=mps"
    again = replayed(tmp_path, policy, cluster, "a,0,40gb,10000", "b,60000,40gb,10000")
    assert (again["instances_created"], again["instances_deleted"]) == (1, 0)
    larger = replayed(tmp_path, policy, cluster, "a,0,50gb,10000", "b,60000,40gb,10000", "c,61000,30gb,10000")
    assert (larger["instances_created"], larger["instances_deleted"]) == (3, 1)
    full = replayed(tmp_path, policy, cluster, "a,0,50gb,100000", "b,1000,40gb,10000")
    assert full["wait"]["40gb"]["max"] >= 99


def test_file_without_jobs_or_columns_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--jobs", written(tmp_path)]) == 2
    assert "has no jobs" in capsys.readouterr().err
    path = tmp_path / "other.csv"
    path.write_bytes(b"name,profile\n\xff,1g\n")
    assert main(["--jobs", str(path)]) == 2
    path.write_text("name,profile\na,1g.10gb\n")
    assert main(["--jobs", str(path)]) == 2
    assert "line 1: column arrival_ms is missing" in capsys.readouterr().err


def test_cluster_is_read_from_any_of_its_parts() -> None:
    assert read_size("gpus=8") == Size(nodes=4, gpus=8, model=H100)
    assert read_size("model=NVIDIA-H100-80GB-HBM3,nodes=1").model is H100
    with pytest.raises(TraceError, match="'gpus' is not understood"):
        read_size("gpus")


@pytest.mark.parametrize(("policy", "first"), [("gpuplan", 0.5), ("nos", 1.25)])
def test_pod_that_comes_alone_waits_for_no_window(tmp_path: Path, policy: str, first: float) -> None:
    """0.1 s of the agent, 0.15 s until the count is written; those that come with others wait a second more."""
    more = ("--write-allocatable", "--create", "0", "--delete", "0")
    lone = replayed(tmp_path, policy, TWO, "a,0,7g.80gb,900000", "b,60000,7g.80gb,900000", more=more)
    assert [lone["wait"]["all"][key] for key in ("p50", "max")] == [first, first]
    three = [f"{name},{at},3g.40gb,900000" for name, at in (("a", 0), ("b", 100), ("c", 200))]
    burst = replayed(tmp_path, policy, TWO, *three, more=more)
    assert burst["wait"]["all"]["max"] <= 1.45


def test_with_a_fixed_window_a_lone_pod_waits_for_it() -> None:
    jobs = [Job(name="a", arrival=0.0, profile="7g.80gb", duration=10.0)]
    delays = Delays(create=0.0, delete=0.0, write_allocatable=True)
    at_once, fixed = (
        replay(policy, jobs, Size(nodes=1, gpus=1, model=H100), delays, settings=Settings(), seed=1, horizon=None)
        for policy in ("gpuplan", FIXED_WINDOW)
    )
    assert fixed.started[0] - at_once.started[0] == pytest.approx(0.75)
