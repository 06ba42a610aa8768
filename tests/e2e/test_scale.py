"""The scale benchmark at a size that takes a minute, so that it cannot rot: pods are bound, nothing is forbidden."""

from pathlib import Path

from benchmarks.scale.run import run
from benchmarks.scale.stage import Sizes
from tests.e2e.rig.controlplane import Binaries

NODES, PODS = 20, 60


def test_a_small_run_binds_every_pod_and_accounts_for_every_request(programs: Binaries, tmp_path: Path) -> None:
    sizes = Sizes(
        nodes=NODES,
        pods=PODS,
        gpus=2,
        per_second=30.0,
        seed=1,
        agent_processes=2,
        settings={"batchWindowTimeoutSeconds": 4.0, "batchWindowIdleSeconds": 1.0},
        agent_settings={"heartbeatSeconds": 5.0},
    )
    found = run(programs, sizes, tmp_path / "run", limit_seconds=240.0, quiet_seconds=0.0, report=print)
    assert found["counts"]["pods bound"] == PODS, found
    assert found["waits"]["created -> bound"]["pods"] + found["counts"]["slices found ready"] == PODS
    assert found["waits"]["plan written -> plan Ready"]["pods"] > 0
    for client in ("controller", "agents"):
        assert found["requests"][client]["refused"] == 0
        assert found["requests"][client]["requests"] > 0
    assert '"userAgent":"gpuplan-controller/' in (tmp_path / "run" / "audit.log").read_text()
    assert found["processes"]["controller"]["peak_mib"] > 0
    assert found["agents"]["failures"] == found["agents"]["pods_refused"] == 0
