"""The chart's dashboards and alerts on a real Prometheus that scrapes a sandbox with load and faults."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.deploy import dashboards
from tests.e2e.monitored import Monitored, prometheus_folder
from tests.e2e.rig.controlplane import Missing
from tests.e2e.test_alerts import run
from tests.waiting import eventually

EMPTY = {
    ("node", "Firing alerts"): "until an alert that names this node fires: here one of the cluster, or of another node",
    ("node", "Errors by kind"): "until a call fails, or something is changed outside gpuplan",
    ("node", "MPS daemons"): "on a node without MPS slices, as here",
    ("fleet", "Firing alerts"): "until an alert fires; its series end with it",
}
"""Queries that may return nothing in this story, by dashboard and panel, and until when."""


@pytest.fixture(scope="module")
def programs() -> Path:
    found = prometheus_folder()
    if isinstance(found, Missing):
        pytest.skip(f"no Prometheus: {found.message}")
    return found


@pytest.fixture(scope="module")
def monitored(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    with Monitored(tmp_path_factory.mktemp("prometheus"), programs) as found:
        yield found


def test_promtool_reads_every_query(programs: Path, tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": dashboards.filled(expr)}
        for number, (_, _, expr) in enumerate(dashboards.queries())
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = run(programs / "promtool", "check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_dashboards_show_load_and_faults_and_alerts_fire_for_them_and_stop(monitored: Monitored) -> None:
    began = time.time()
    monitored.load()
    monitored.want("too-large", "nvidia.com/mig-7g.40gb")
    monitored.end("infer-a")
    monitored.end("train-a")
    monitored.want("after-a", "nvidia.com/mig-2g.10gb")
    monitored.wait_for_running(8)
    faults = {"GpuplanNoLeader", "GpuplanAgentSilent", "GpuplanGPUUnhealthy"}
    # Until the first election no controller is the leader, and alerts fire within seconds here.
    eventually(lambda: not monitored.firing() & faults, "no alert of a fault", seen=monitored.firing)

    monitored.lose_gpu("h100")
    eventually(lambda: "GpuplanGPUUnhealthy" in monitored.firing(), "the alert of the lost GPU", seen=monitored.firing)
    monitored.pause("a30")
    monitored.silence("a30")
    eventually(lambda: "GpuplanAgentDown" in monitored.firing(), "the alert of the agent", seen=monitored.firing)
    monitored.find_gpu_again("h100")
    eventually(lambda: "GpuplanGPUUnhealthy" not in monitored.firing(), "the GPU to be Ready", seen=monitored.firing)

    seconds = time.time() - began
    missing = []
    for name, panel, expr in dashboards.queries():
        values = {"node": "a100"} if name == "node" else {}
        query = dashboards.filled(expr, values, span=f"{seconds:.0f}s")
        found = monitored.query_range(query, seconds=seconds, end=time.time(), step=2)
        if not found and (name, panel) not in EMPTY:
            missing.append((name, panel, query))
    assert not missing
