"""What the liveness probe gets: a socket that is silent for a minute, and nothing else, fails it."""

import os
import socket
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest

from kube.kubelet_api import deviceplugin_pb2 as pb
from kube.kubelet_api import deviceplugin_pb2_grpc as rpc
from kube.kubelet_api.paths import unix_target
from kube.kubelet_api.plugin_socket import answers
from nodeagent.device_plugin.liveness import Liveness
from nodeagent.device_plugin.server import WORKERS
from sandbox.ports import LOOPBACK, HeldPort
from tests.clock import Clock
from tests.nodeagent.device_plugin.conftest import PluginNode, Start
from tests.nodeagent.device_plugin.devices import ALL, MIG, mig
from tests.nodeagent.device_plugin.fake_kubelet import FakeKubelet
from tests.waiting import eventually

DAY_SECONDS = 86400.0
OK = grpc.StatusCode.OK


class Plugin(rpc.DevicePluginServicer):
    """Answers with one status, once it may."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self.code, self.may_answer, self.questions = code, threading.Event(), list[pb.PreferredAllocationRequest]()

    def GetPreferredAllocation(  # noqa: N802 - the protocol's name
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        self.questions.append(request)
        self.may_answer.wait()
        if self.code is not OK:
            context.abort(self.code, "as the test wants")
        return pb.PreferredAllocationResponse()


@contextmanager
def serving(path: Path, code: grpc.StatusCode = OK, *, hangs: bool = False) -> Iterator[Plugin]:
    plugin, server = Plugin(code), grpc.server(futures.ThreadPoolExecutor(4))
    rpc.add_DevicePluginServicer_to_server(plugin, server)
    server.add_insecure_port(unix_target(path))
    server.start()
    if not hangs:
        plugin.may_answer.set()
    yield plugin
    plugin.may_answer.set()
    server.stop(grace=None).wait()


@pytest.fixture
def silent(node: PluginNode) -> Iterator[Path]:
    """A socket's file, that has no listener."""
    path = node.root / "silent.sock"
    with closing(socket.socket(socket.AF_UNIX)) as bound:
        bound.bind(str(path))
        yield path


@pytest.mark.parametrize("code", [OK, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL])
def test_any_status_is_an_answer(node: PluginNode, code: grpc.StatusCode) -> None:
    with serving(node.root / "p.sock", code) as plugin:
        assert answers(node.root / "p.sock", timeout_seconds=20.0)
    (question,) = plugin.questions  # none by GetDevicePluginOptions, which would pass for the kubelet's
    assert [list(each.available_deviceIDs) for each in question.container_requests] == [["no device"]]


def test_a_handler_that_hangs_and_a_socket_without_listener_give_none(node: PluginNode, silent: Path) -> None:
    with serving(node.root / "p.sock", hangs=True) as plugin:
        assert not answers(node.root / "p.sock", timeout_seconds=0.2)
        eventually(lambda: plugin.questions, "the question had arrived")
    assert not answers(silent, timeout_seconds=20.0)


@pytest.mark.parametrize(("seconds", "failed"), [(0, False), (59, False), (61, True), (DAY_SECONDS, True)])
def test_a_socket_may_be_silent_for_a_minute(silent: Path, seconds: float, failed: bool) -> None:
    clock = Clock()
    liveness = Liveness(lambda: [silent], clock)
    liveness.ask()
    clock.now += seconds
    liveness.ask()
    assert liveness.problems() == ([f"silent.sock has not answered for {seconds:.0f} s"] if failed else [])


def test_the_minute_begins_with_the_first_question_after_an_answer(node: PluginNode) -> None:
    """A plugin that was stopped for a day has no socket that does not answer."""
    clock, path = Clock(), node.root / "p.sock"
    liveness = Liveness(lambda: [path], clock)
    with serving(path):
        liveness.ask()
        clock.now += DAY_SECONDS
        assert liveness.problems() == []
        liveness.ask()
        assert liveness.problems() == []


def test_a_question_that_hangs_counts_until_it_is_answered(node: PluginNode) -> None:
    clock, path = Clock(), node.root / "p.sock"
    liveness = Liveness(lambda: [path], clock)
    with serving(path, hangs=True) as plugin:
        asking = threading.Thread(target=liveness.ask)
        asking.start()
        eventually(lambda: plugin.questions, "the question")
        clock.now += 59
        assert liveness.problems() == []
        clock.now += 2
        assert liveness.problems() == ["p.sock has not answered for 61 s"]
        plugin.may_answer.set()
        asking.join()
        assert liveness.problems() == []


def test_one_silent_socket_fails_it_alongside_one_that_answers(node: PluginNode, silent: Path) -> None:
    clock, path = Clock(), node.root / "p.sock"
    liveness = Liveness(lambda: [path, silent], clock)
    with serving(path):
        for _ in range(7):
            liveness.ask()
            clock.now += 10
    assert liveness.problems() == ["silent.sock has not answered for 70 s"]


@pytest.mark.parametrize("case", ["nothing is served", "it has just started", "the kubelet removed the file", "again"])
def test_what_is_not_there_cannot_be_silent(node: PluginNode, silent: Path, case: str) -> None:
    clock = Clock()
    sockets = {"nothing is served": [], "it has just started": [node.root / "none.sock"]}.get(case, [silent])
    liveness = Liveness(lambda: sockets, clock)
    liveness.ask()
    if case == "the kubelet removed the file":
        silent.unlink()
    if case == "again":
        sockets[:] = [silent.rename(node.root / "another.sock")]
    clock.now += DAY_SECONDS
    liveness.ask()
    assert liveness.problems() == []


def test_a_plugin_whose_kubelet_is_gone_and_whose_disk_hangs_lives(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    clock = Clock()
    service = start_plugin().service
    node.load(ALL)
    kubelet.allocate(MIG, ids={mig(0).id})
    liveness = Liveness(service.sockets, clock)
    kubelet.stop()
    os.mkfifo(node.files.seen_free)  # a reader never returns, as from a disk that does not answer
    try:
        assert len(service.sockets()) == 3
        for _ in range(10):
            liveness.ask()
            assert liveness.problems() == []
            clock.now += 61
        liveness.ask()
        assert liveness.problems() == []
    finally:
        node.files.seen_free.rename(node.root / "released")
        os.close(os.open(node.root / "released", os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.parametrize("hangs", ["the ledger", "what the agent says"])
def test_a_plugin_lives_whose_disk_hangs_while_more_containers_start_than_it_has_workers(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, hangs: str
) -> None:
    """The kubelet tries each again, and what waits for the disk is never done with it."""
    service = start_plugin().service
    node.load(ALL)
    for _ in range(2):
        kubelet.rows.clear()
        kubelet.allocate(MIG, ids={mig(0).id})
    plugin = kubelet.resources[MIG].newest.plugin
    file = node.files.seen_free
    if hangs == "the ledger":
        file = node.files.directory / f".{node.files.ledger.name}.tmp"
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    try:
        starts = pb.PreStartContainerRequest(devices_ids=[mig(1 if hangs == "the ledger" else 0).id])
        calls = [plugin.PreStartContainer.future(starts, timeout=0.5) for _ in range(2 * WORKERS)]
        codes = {call.code() for call in calls}
        assert codes == {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}
        assert all(answers(path, timeout_seconds=20.0) for path in service.sockets())
    finally:
        file.rename(node.root / "released")
        os.close(os.open(node.root / "released", os.O_RDWR | os.O_NONBLOCK))


def test_the_page_is_on_loopback(silent: Path) -> None:
    clock = Clock()
    with closing(HeldPort()) as held:
        Liveness(lambda: [silent], clock).start(held.number)
        url = f"http://{LOOPBACK}:{held.number}/healthz"
        with urlopen(url, timeout=60) as page:
            assert (page.status, page.read()) == (200, b"ok\n")
        failed = eventually(lambda: failure(url, clock), "a failure after a minute")
        assert failed[0] == 500
        assert "silent.sock has not answered" in failed[1]


def failure(url: str, clock: Clock) -> tuple[int, str] | None:
    """A minute later."""
    clock.now += 61
    try:
        with urlopen(url, timeout=60):
            return None
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_port_that_another_program_has_does_not_end_the_plugin(caplog: pytest.LogCaptureFixture) -> None:
    with closing(socket.socket()) as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        Liveness(list).start(other.getsockname()[1])
    assert "devicePlugin.livenessPort" in caplog.text
