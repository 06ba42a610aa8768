"""What daemons have as defaults, and that their logs stay within a bound."""

from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.handover.config import PluginConfig
from nodeagent.handover.mps_state import MpsDaemon, MpsState
from nodeagent.mps import logs
from nodeagent.mps.control import Defaults
from nodeagent.mps.supervisor import MpsSupervisor, shares
from tests.nodeagent.device_plugin.devices import GPU_A, GPU_B, mig, mps, whole


def test_a_daemon_has_the_largest_share_of_its_gpu_as_default() -> None:
    large = replace(mps(1, GPU_A), id="large", memory_mib=19073)
    replicas = [replace(mps(n, GPU_B, thread_percent=25), mergeable=True) for n in range(3)]
    config = PluginConfig.of([mps(0, GPU_A, thread_percent=25), large, *replicas, mig(0), whole()])
    assert shares(config) == {
        GPU_A: Defaults(memory_mib=19073, thread_percent=100),
        GPU_B: Defaults(memory_mib=3 * 9536, thread_percent=75),  # a container may hold all of them
    }
    assert shares(PluginConfig.of([mps(0, thread_percent=10)])) == {GPU_B: Defaults(memory_mib=9536, thread_percent=10)}
    assert shares(PluginConfig()) == {}


def test_a_log_beyond_its_bound_is_emptied_in_place(tmp_path: Path) -> None:
    small, large = tmp_path / "server.log", tmp_path / "control.log"
    small.write_text("x")
    with large.open("wb") as daemon:  # which keeps it open, and goes on where it was
        daemon.write(b"x" * 2 * logs.MOST_BYTES)
        daemon.flush()
        logs.bound([tmp_path, tmp_path / "absent"])
        assert large.stat().st_size == 0
        daemon.write(b"more")
        daemon.flush()
        logs.bound([tmp_path])
        assert large.read_bytes().endswith(b"more"), "the hole before it takes no room on the disk"
    assert small.read_text() == "x"


def test_each_alarm_is_logged_once_and_only_the_last_is_remembered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = MpsSupervisor(state_dir=tmp_path, mps_root=tmp_path / "m", environment={})
    for alarms in (1, 1, 2, 3, 3):
        supervisor._report(MpsState(daemons=(MpsDaemon(gpu=GPU_A, ready=True, alarm="it was changed", alarms=alarms),)))
    assert [record.message for record in caplog.records] == [f"MPS on {GPU_A}: it was changed"] * 3
    assert len(supervisor._change_log._last) == 1, "a client can go on causing alarms for as long as it runs"
