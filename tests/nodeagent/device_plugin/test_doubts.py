"""A kubelet without its record of who holds what is not offered a held device, not even in the first list."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.handover.config import Allocation, PluginConfig, read_ledger, write_config, write_ledger
from nodeagent.handover.seen_free import SeenFree, write_seen_free
from tests.nodeagent.device_plugin.conftest import PluginNode, Start
from tests.nodeagent.device_plugin.devices import GPU_A, MIG, messages, mig, refusal
from tests.nodeagent.device_plugin.fake_kubelet import FakeKubelet, Resource
from tests.waiting import eventually

pytestmark = pytest.mark.slow

TWO = PluginConfig.of([mig(0), mig(1)])
BOTH = frozenset({"MIG-0", "MIG-1"})


def ledger(node: PluginNode) -> dict[str, float]:
    found = read_ledger(node.files)
    assert isinstance(found, tuple)
    return {entry.id: entry.at for entry in found}


def offers(kubelet: FakeKubelet) -> set[frozenset[str]]:
    """Every list of this kubelet's life."""
    return set(kubelet.resources.get(MIG, Resource()).offers)


def spoil(path: Path) -> None:
    path.write_text(path.read_text().replace('"Checksum": ', '"Checksum": 1'))


def cut(path: Path) -> None:
    path.write_text(path.read_text()[:40])


@pytest.fixture
def holder(node: PluginNode, kubelet: FakeKubelet, start_plugin: Start) -> str:
    """One of two devices is held, and agent and plugin agree on everything."""
    start_plugin()
    node.load(TWO)
    kubelet.allocate(MIG, ids={"MIG-0"})
    return "MIG-0"


@pytest.mark.parametrize("damage", [Path.unlink, cut])
@pytest.mark.parametrize("end", ["kubelet", "both"])
def test_a_held_id_is_in_no_list_of_a_kubelet_that_lost_its_checkpoint(
    node: PluginNode,
    kubelet: FakeKubelet,
    start_plugin: Start,
    damage: Callable[[Path], object],
    end: str,
) -> None:
    plugin = start_plugin()
    node.load(TWO)
    kubelet.allocate(MIG, ids={"MIG-0"})
    kubelet.stop()
    damage(kubelet.paths.checkpoint)
    if end == "both":
        plugin.stop()
        start_plugin()
    kubelet.start()

    eventually(lambda: kubelet.healthy(MIG) == {"MIG-1"}, "the other one at the kubelet")
    assert offers(kubelet) == {frozenset({"MIG-1"})}
    assert "may be in use by a pod that the kubelet has forgotten" in refusal(
        lambda: kubelet.allocate(MIG, ids={"MIG-0"})
    )
    kubelet.allocate(MIG)
    assert kubelet.held() == {"MIG-1"}
    eventually(lambda: "has no record of who got" in messages(node.loaded()), "the problem in loaded.json")

    write_seen_free(node.files, SeenFree(allocations={"MIG-0": ledger(node)["MIG-0"]}))
    eventually(lambda: kubelet.healthy(MIG) == BOTH, "offered again once it was seen free")
    eventually(lambda: not messages(node.loaded()), "no problem")


def test_a_checkpoint_that_only_the_kubelet_refuses_is_noticed_when_it_writes_its_own(
    kubelet: FakeKubelet, holder: str
) -> None:
    kubelet.stop()
    spoil(kubelet.paths.checkpoint)
    kubelet.start()

    eventually(lambda: kubelet.healthy(MIG) == {"MIG-1"}, "the other one at the kubelet")
    assert kubelet.held() == set()
    assert offers(kubelet) == {BOTH, frozenset({"MIG-1"})}
    assert holder not in kubelet.healthy(MIG)


def test_a_wiped_state_directory_tells_the_next_process_who_has_what(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    plugin = start_plugin()
    node.load(TWO)
    kubelet.allocate(MIG, ids={"MIG-0"})
    shutil.rmtree(node.files.directory)
    eventually(node.files.ledger.exists, "the ledger is there again")
    plugin.stop()
    kubelet.stop()
    kubelet.paths.checkpoint.unlink()
    write_config(node.files, TWO)
    start_plugin()
    kubelet.start()

    eventually(lambda: kubelet.healthy(MIG) == {"MIG-1"}, "the other one at the kubelet")
    assert offers(kubelet) == {frozenset({"MIG-1"})}


@pytest.mark.parametrize("lost", [Path.unlink, cut])
def test_after_a_loss_of_the_ledger_what_the_checkpoint_does_not_show_is_in_no_list_until_it_is_seen_free(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, lost: Callable[[Path], object]
) -> None:
    """No agent had read it."""
    plugin = start_plugin()
    node.load(TWO)
    kubelet.allocate(MIG, ids={"MIG-0"})
    plugin.stop()
    kubelet.stop()
    lost(node.files.ledger)
    kubelet.paths.checkpoint.unlink()
    start_plugin()
    kubelet.start()

    eventually(lambda: "has no record of who got" in messages(node.loaded()), "the problem in loaded.json")
    eventually(lambda: offers(kubelet) == {frozenset()}, "a list in which nothing is healthy")
    write_seen_free(node.files, SeenFree(allocations={"MIG-1": ledger(node)["MIG-1"]}))
    eventually(lambda: kubelet.healthy(MIG) == {"MIG-1"}, "the one that was seen free")
    assert offers(kubelet) == {frozenset(), frozenset({"MIG-1"})}


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("restarts", ["kubelet", "plugin", "both"])
def test_with_whole_records_a_restart_changes_nothing_on_offer(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, restarts: str, ended: bool
) -> None:
    plugin = start_plugin()
    node.load(TWO)
    kubelet.allocate(MIG, ids={"MIG-0"})
    if ended:
        kubelet.end_pods()
        write_seen_free(node.files, SeenFree(allocations=ledger(node)))
        kubelet.allocate(MIG, ids={"MIG-1"})  # writes the checkpoint
    if restarts != "plugin":
        kubelet.stop()
    if restarts != "kubelet":
        plugin.stop()
        start_plugin()
    if restarts != "plugin":
        kubelet.start()
    node.load(TWO)
    kubelet.end_pods()
    kubelet._save()  # as with the next device update

    assert kubelet.healthy(MIG) == BOTH
    assert {healthy for healthy in offers(kubelet) if healthy} == {BOTH}


def test_a_mark_of_an_earlier_allocate_proves_nothing(node: PluginNode, kubelet: FakeKubelet, holder: str) -> None:
    write_seen_free(node.files, SeenFree(allocations={holder: ledger(node)[holder] - 1}))
    kubelet.stop()
    kubelet.paths.checkpoint.unlink()
    kubelet.start()
    eventually(lambda: kubelet.healthy(MIG) == {"MIG-1"}, "the other one at the kubelet")


@pytest.mark.parametrize(("boot_id", "offered"), [("one", BOTH), ("two", {"MIG-1"}), ("", {"MIG-1"})])
def test_what_an_earlier_boot_handed_out_is_history(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, boot_id: str, offered: set[str]
) -> None:
    write_ledger(node.files, [Allocation(id="MIG-0", resource=MIG, at=1.0, boot_id=boot_id)])
    write_config(node.files, TWO)
    start_plugin(boot_id="two")
    eventually(lambda: kubelet.healthy(MIG) == offered, f"{offered} at the kubelet")
    assert offers(kubelet) == {frozenset(offered)}


def test_the_gpu_of_a_doubted_device_is_named(node: PluginNode, kubelet: FakeKubelet, holder: str) -> None:
    kubelet.stop()
    kubelet.paths.checkpoint.unlink()
    kubelet.start()

    def named() -> bool:
        loaded = node.loaded()
        return loaded is not None and [problem.gpu for problem in loaded.errors] == [GPU_A]

    eventually(named, f"{holder} is doubted")


@pytest.mark.usefixtures("kubelet")
def test_only_what_was_seen_free_is_forgotten(node: PluginNode, start_plugin: Start) -> None:
    """A holder may outlive every config that names its device by more than a day."""
    write_ledger(node.files, [Allocation(id=i, resource=MIG, at=1.0) for i in ("MIG-8", "MIG-9")])
    write_seen_free(node.files, SeenFree(allocations={"MIG-9": 1.0}))
    start_plugin()
    node.load(TWO)
    assert ledger(node) == {"MIG-8": 1.0}
