"""What the device plugin makes of the reports about MPS daemons: slices stay healthy while a supervisor is replaced."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.device_plugin.mps_health import ABSENT, UNCHECKED, MpsHealth
from nodeagent.handover.config import PluginFiles
from nodeagent.handover.mps_state import MpsDaemon, MpsState, hold_mps_lock, is_running, write_mps
from tests.clock import Clock
from tests.waiting import eventually

GPU = "GPU-5d5ba0d6-0000-0000-0000-000000000000"
PATIENCE_SECONDS = 20.0


class DaemonsDesk:
    def __init__(self, path: Path) -> None:
        self.files, self.clock = PluginFiles(path), Clock()
        self.known = MpsHealth(self.files, clock=self.clock, patience_seconds=PATIENCE_SECONDS)
        self.known.claim([GPU])
        self.lock = hold_mps_lock(self.files)

    def report(self, *, ready: bool, problem: str = "") -> None:
        write_mps(self.files, MpsState(daemons=(MpsDaemon(gpu=GPU, ready=ready, problem=problem),)))

    def replace_supervisor(self) -> None:
        assert self.lock is not None
        self.lock.close()
        self.lock = hold_mps_lock(self.files)

    def unready(self) -> frozenset[str]:
        self.known.refresh()
        return self.known.unready()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[DaemonsDesk]:
    found = DaemonsDesk(tmp_path)
    yield found
    if found.lock is not None:
        found.lock.close()


def test_a_new_slice_is_unhealthy_until_its_daemon_answers(desk: DaemonsDesk) -> None:
    desk.report(ready=False)
    assert desk.unready() == {GPU}
    desk.report(ready=True)
    assert desk.unready() == frozenset()


def test_slices_leave_the_list_where_a_supervisor_that_hangs_still_reports_an_ended_daemon(desk: DaemonsDesk) -> None:
    """No container with such a slice starts, so no further pod must be sent to one; other GPUs keep theirs."""
    other = f"{GPU[:-1]}1"
    desk.known.claim([GPU, other])
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    reports = (MpsDaemon(gpu=GPU, ready=True, pid=child.pid), MpsDaemon(gpu=other, ready=True))
    write_mps(desk.files, MpsState(daemons=reports))
    assert desk.unready() == frozenset()

    child.communicate(b"\n")
    assert desk.unready() == frozenset(), "it may be started again just now"
    desk.clock.now += PATIENCE_SECONDS
    assert desk.unready() == {GPU}


def test_slices_stay_healthy_while_a_supervisor_is_replaced(desk: DaemonsDesk) -> None:
    desk.report(ready=True)
    assert desk.unready() == frozenset()
    desk.replace_supervisor()
    assert desk.unready() == frozenset()
    assert desk.known.confirm(GPU) == ABSENT  # no container starts meanwhile
    desk.report(ready=False)  # it has read what is desired, and checks next
    assert desk.unready() == frozenset()
    assert desk.known.confirm(GPU) == UNCHECKED
    assert desk.known.seconds_to_due() == PATIENCE_SECONDS
    desk.report(ready=True)
    assert desk.unready() == frozenset()
    assert desk.known.seconds_to_due() == float("inf")


@pytest.mark.parametrize("reported", [True, False])
def test_patience_ends(desk: DaemonsDesk, reported: bool) -> None:
    desk.report(ready=True)
    desk.unready()
    desk.replace_supervisor()
    if reported:
        desk.report(ready=False)
    assert desk.unready() == frozenset()
    desk.clock.now += PATIENCE_SECONDS
    assert desk.unready() == {GPU}
    desk.report(ready=True)
    assert desk.unready() == frozenset()


def test_a_daemon_with_a_problem_is_unhealthy_at_once(desk: DaemonsDesk) -> None:
    desk.report(ready=True)
    desk.unready()
    desk.report(ready=False, problem="it did not start")
    assert desk.unready() == {GPU}
    assert desk.known.problems() == {GPU: "it did not start"}


def test_a_zombie_serves_no_client() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert is_running(process.pid)
        process.kill()
        eventually(lambda: not is_running(process.pid), "it has ended, and nothing has waited for it")
        assert process.returncode is None
    assert not is_running(process.pid)
    assert is_running(0)  # not known
