"""A container starts with a device that was handed out again when the agent has said whose it is, and not before."""

import contextlib
import shutil
import threading
from typing import Any

import grpc
import pytest

from kube.kubelet_api import deviceplugin_pb2 as pb
from nodeagent.device_plugin.server import MAX_STARTING, ResourceServer
from nodeagent.handover.config import PluginConfig, read_ledger, read_ledger_mark, write_config
from nodeagent.handover.seen_free import SeenFree, write_seen_free
from tests.nodeagent.device_plugin.conftest import PluginNode, Running, Start
from tests.nodeagent.device_plugin.devices import MIG, SLICE, mig, mps
from tests.nodeagent.device_plugin.fake_kubelet import FakeKubelet
from tests.waiting import eventually

pytestmark = pytest.mark.slow

TWO = PluginConfig.of([mig(0), mig(1)])


def starts(kubelet: FakeKubelet, *ids: str) -> bool:
    try:
        kubelet.pre_start(MIG, *ids)
    except grpc.RpcError as error:
        refused = (error.code(), "an earlier pod may still use MIG-0" in str(error.details()))
    else:
        return True
    assert refused == (grpc.StatusCode.UNAVAILABLE, True)
    return False


def at(node: PluginNode) -> float:
    """When the device was handed out last."""
    ledger = read_ledger(node.files)
    assert isinstance(ledger, tuple)
    return next(entry.at for entry in ledger if entry.id == "MIG-0")


def again(kubelet: FakeKubelet) -> str:
    """Force deletion, and the device to another pod; returns the UID of that one."""
    kubelet.rows.clear()
    kubelet.allocate(MIG, ids={"MIG-0"})
    uid = kubelet.rows[-1]["PodUID"] = "second"
    kubelet._save()
    return uid


@pytest.fixture
def agent(node: PluginNode, kubelet: FakeKubelet, start_plugin: Start) -> Running:
    """It says whose devices are, and has seen nothing free yet; one device is held. Returns the plugin."""
    write_seen_free(node.files, SeenFree())
    plugin = start_plugin(agent_patience_seconds=0)
    node.load(TWO)
    kubelet.allocate(MIG, ids={"MIG-0"})
    return plugin


@pytest.mark.usefixtures("agent")
def test_what_is_handed_out_for_the_first_time_needs_no_agent(kubelet: FakeKubelet) -> None:
    assert starts(kubelet, "MIG-0")
    kubelet.allocate(MIG, ids={"MIG-1"})
    assert starts(kubelet, "MIG-1")


@pytest.mark.usefixtures("agent")
def test_what_was_handed_out_again_waits_for_the_name_of_its_pod(node: PluginNode, kubelet: FakeKubelet) -> None:
    uid = again(kubelet)
    assert not starts(kubelet, "MIG-0", "MIG-1")
    write_seen_free(node.files, SeenFree(alone={"MIG-0": ("uid-0", at(node))}))
    assert not starts(kubelet, "MIG-0")
    write_seen_free(node.files, SeenFree(alone={"MIG-0": (uid, at(node))}))
    assert starts(kubelet, "MIG-0")


@pytest.mark.usefixtures("agent")
def test_what_was_said_of_an_earlier_allocate_says_nothing_of_this_one(node: PluginNode, kubelet: FakeKubelet) -> None:
    """A static pod has one UID in all its lives."""
    earlier = at(node)
    uid = again(kubelet)
    write_seen_free(node.files, SeenFree(alone={"MIG-0": (uid, earlier)}))
    assert not starts(kubelet, "MIG-0")


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("left", ["a file that cannot be read", "no file, as where it was deleted"])
def test_without_a_word_of_the_agent_nothing_starts(node: PluginNode, kubelet: FakeKubelet, left: str) -> None:
    again(kubelet)
    node.files.seen_free.unlink() if left.startswith("no") else node.files.seen_free.write_text("{")
    assert not starts(kubelet, "MIG-0")


@pytest.mark.usefixtures("agent")
def test_a_plugin_that_was_started_again_waits_as_well(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    again(kubelet)
    start_plugin(agent_patience_seconds=0)
    assert not starts(kubelet, "MIG-0")


@pytest.mark.parametrize("ledger", ["deleted", "an earlier one", "deleted, and so is what the agent said"])
def test_a_plugin_that_lost_its_ledger_waits_as_well(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, agent: Running, ledger: str
) -> None:
    """Which of those with a device had it first, only the agent may know."""
    earlier = node.files.ledger.read_bytes()
    uid = again(kubelet)
    write_seen_free(node.files, SeenFree(ledger=read_ledger_mark(node.files)))
    agent.stop()
    node.files.ledger.unlink()
    if ledger == "an earlier one":
        node.files.ledger.write_bytes(earlier)
    if ledger.endswith("said"):
        node.files.seen_free.unlink()
    start_plugin(agent_patience_seconds=0)
    node.load(TWO)
    assert not starts(kubelet, "MIG-0")
    write_seen_free(node.files, SeenFree(alone={"MIG-0": (uid, at(node))}))
    assert starts(kubelet, "MIG-0")
    assert starts(kubelet, "MIG-0"), "a container that starts again does not wait again"


@pytest.mark.usefixtures("agent")
def test_what_was_seen_free_is_not_waited_for(node: PluginNode, kubelet: FakeKubelet) -> None:
    ledger = read_ledger(node.files)
    assert isinstance(ledger, tuple)
    write_seen_free(node.files, SeenFree(allocations={entry.id: entry.at for entry in ledger}))
    again(kubelet)
    assert starts(kubelet, "MIG-0")


@pytest.mark.usefixtures("agent")
def test_two_pods_in_the_checkpoint_are_one_too_many(node: PluginNode, kubelet: FakeKubelet) -> None:
    uid = again(kubelet)
    write_seen_free(node.files, SeenFree(alone={"MIG-0": (uid, at(node))}))
    kubelet.rows.append({**kubelet.rows[-1], "PodUID": "first"})
    kubelet._save()
    assert not starts(kubelet, "MIG-0")


@pytest.mark.usefixtures("agent")
def test_a_checkpoint_that_cannot_be_read_names_no_pod(node: PluginNode, kubelet: FakeKubelet) -> None:
    uid = again(kubelet)
    write_seen_free(node.files, SeenFree(alone={"MIG-0": (uid, at(node))}))
    kubelet.paths.checkpoint.write_text("{")
    assert not starts(kubelet, "MIG-0")


def test_the_answer_comes_within_the_call_where_the_agent_is_quick(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    """The kubelet's own pauses grow to half a minute."""
    write_seen_free(node.files, SeenFree())
    start_plugin(agent_patience_seconds=20)
    node.load(TWO)
    kubelet.allocate(MIG, ids={"MIG-0"})
    uid = again(kubelet)
    answers: list[bool] = []
    call = threading.Thread(target=lambda: answers.append(starts(kubelet, "MIG-0")))
    call.start()
    assert not answers
    write_seen_free(node.files, SeenFree(alone={"MIG-0": (uid, at(node))}))
    call.join()
    assert answers == [True]


def test_as_many_containers_as_start_with_a_node_start(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is looked at in a moment, and the kubelet tries one that is refused only after ten seconds."""
    come, all_have_come = threading.Semaphore(0), threading.Event()
    start, look = ResourceServer.PreStartContainer, ResourceServer._why_not_yet

    def comes(*arguments: Any) -> Any:
        come.release()
        return start(*arguments)

    def looks(*arguments: Any) -> str:
        all_have_come.wait(60)
        return look(*arguments)

    monkeypatch.setattr(ResourceServer, "PreStartContainer", comes)
    monkeypatch.setattr(ResourceServer, "_why_not_yet", looks)
    start_plugin()
    node.load(TWO)
    kubelet.allocate(MIG, ids={"MIG-0"})
    plugin, request = kubelet.resources[MIG].newest.plugin, pb.PreStartContainerRequest(devices_ids=["MIG-0"])
    calls = [plugin.PreStartContainer.future(request, timeout=60.0) for _ in range(MAX_STARTING + 4)]
    for _ in calls:
        assert come.acquire(timeout=60)
    all_have_come.set()
    assert {call.code() for call in calls} == {grpc.StatusCode.OK}


def test_calls_that_wait_leave_a_worker_for_an_allocate(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    write_seen_free(node.files, SeenFree())
    start_plugin(agent_patience_seconds=20)
    node.load(TWO)
    kubelet.allocate(MIG, ids={"MIG-0"})
    uid = again(kubelet)

    def start() -> None:
        # Those for which there is no room are refused, and tried again.
        with contextlib.suppress(grpc.RpcError):
            kubelet.pre_start(MIG, "MIG-0")

    calls = [threading.Thread(target=start) for _ in range(40)]
    for call in calls:
        call.start()
    kubelet.allocate(MIG, ids={"MIG-1"})
    assert "MIG-1" in kubelet.held()
    write_seen_free(node.files, SeenFree(alone={"MIG-0": (uid, at(node))}))
    for call in calls:
        call.join()


def test_an_mps_slice_waits_too(node: PluginNode, kubelet: FakeKubelet, start_plugin: Start) -> None:
    write_seen_free(node.files, SeenFree())
    start_plugin(agent_patience_seconds=0)
    write_config(node.files, PluginConfig.of([mps(0)]))
    eventually(lambda: SLICE in kubelet.resources and kubelet.resources[SLICE].devices != {}, "the slice is listed")
    device = mps(0).id
    for _ in range(2):
        kubelet.rows.clear()
        kubelet.allocate(SLICE, ids={device})
    with pytest.raises(grpc.RpcError, match=f"an earlier pod may still use {device}"):
        kubelet.pre_start(SLICE, device)


@pytest.mark.parametrize("story", [f"{r}, {w}" for r in ("wiped", "another's") for w in ("", "kubelet", "plugin")])
def test_what_the_checkpoint_names_and_no_ledger_was_handed_out_before(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, agent: Running, story: str
) -> None:
    """Its pod may have ended by the API alone; who wiped all records left nothing that tells of a loss."""
    records, restarts = story.split(", ")
    agent.stop()
    if records == "wiped":
        shutil.rmtree(node.files.directory)
        node.files.directory.mkdir(parents=True)
    else:  # as where NVIDIA's plugin has served until now, and gave another pod the device
        node.files.ledger.unlink()
        node.files.loaded.unlink()
    write_seen_free(node.files, SeenFree())
    plugin = start_plugin(agent_patience_seconds=0)
    if restarts:
        eventually(node.files.loaded.exists, "the first report")
        kubelet.rows.clear()  # a kubelet that admits the pod no more
        kubelet._save()
    if restarts == "plugin":
        plugin.stop()
        start_plugin(agent_patience_seconds=0)
    node.load(TWO)
    if restarts == "kubelet":
        kubelet.stop()
        kubelet.start()
        eventually(lambda: kubelet.healthy(MIG) == {"MIG-0", "MIG-1"}, "the devices at the kubelet")
    uid = again(kubelet)
    kubelet.allocate(MIG, ids={"MIG-1"})
    assert starts(kubelet, "MIG-1"), "it was never handed out"
    assert not starts(kubelet, "MIG-0")
    write_seen_free(node.files, SeenFree(alone={"MIG-0": (uid, at(node))}))
    assert starts(kubelet, "MIG-0")
