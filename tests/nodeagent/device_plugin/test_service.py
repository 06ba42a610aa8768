"""The whole plugin against a strict kubelet: what is listed, what pods get, and what is refused."""

import time

import grpc
import pytest

from nodeagent.handover.config import PluginConfig, read_ledger
from tests.nodeagent.device_plugin.conftest import PluginNode, Start
from tests.nodeagent.device_plugin.devices import (
    ALL,
    GPU_A,
    GPU_B,
    GPU_C,
    MIG,
    SLICE,
    WHOLE,
    messages,
    mig,
    mps,
    refusal,
)
from tests.nodeagent.device_plugin.fake_kubelet import FakeKubelet
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("daemons_answer")


def test_everything_is_registered_listed_and_confirmed(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin()
    loaded = node.load(ALL)
    assert loaded.registered == {WHOLE: True, SLICE: True, MIG: True}
    assert loaded.errors == ()
    eventually(lambda: kubelet.healthy(MIG) == {"MIG-0", "MIG-1"}, "both MIG devices at the kubelet")
    eventually(
        lambda: kubelet.healthy(SLICE) == {f"{GPU_B}::10gb::0", f"{GPU_B}::10gb::1"},
        "kubelet.healthy(SLICE) == {f'{GPU_B}::10gb::0', f'{GPU_B}::10gb::1'}",
    )  # their daemon answers
    eventually(lambda: kubelet.healthy(WHOLE) == {GPU_C}, "the whole GPU at the kubelet")
    options = {name: known.newest.options for name, known in kubelet.resources.items()}
    assert all(o.pre_start_required for o in options.values())
    assert all(o.get_preferred_allocation_available for o in options.values())
    assert (kubelet.overlaps, [kubelet.open_streams(r) for r in (MIG, SLICE, WHOLE)]) == ([], [1, 1, 1])


def test_answers_of_allocate(node: PluginNode, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin()
    node.load(ALL)
    pipe = str(node.pipe(GPU_B))
    assert kubelet.allocate(MIG, ids={"MIG-1"}).envs == {"NVIDIA_VISIBLE_DEVICES": "MIG-1"}
    assert kubelet.allocate(MIG, ids={"MIG-1", "MIG-0"}).envs == {"NVIDIA_VISIBLE_DEVICES": "MIG-0,MIG-1"}
    assert kubelet.allocate(WHOLE).envs == {"NVIDIA_VISIBLE_DEVICES": GPU_C}
    first = kubelet.allocate(SLICE, ids={f"{GPU_B}::10gb::0"})
    assert first.envs == {
        "NVIDIA_VISIBLE_DEVICES": GPU_B,
        "CUDA_MPS_PIPE_DIRECTORY": pipe,
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=9536M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
    }
    assert [(m.container_path, m.host_path, m.read_only) for m in first.mounts] == [(pipe, pipe, True)]
    second = kubelet.allocate(SLICE, ids={f"{GPU_B}::10gb::1"})
    assert second.envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert not first.devices
    assert not first.cdi_devices


def test_the_ledger_names_each_id_before_the_answer(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    plugin = start_plugin()
    node.load(ALL)
    before = time.time()
    kubelet.allocate(MIG, ids={"MIG-0"})
    ledger = read_ledger(node.files)
    assert isinstance(ledger, tuple)
    assert [(entry.id, entry.resource) for entry in ledger] == [("MIG-0", MIG)]
    assert before - 1 <= ledger[0].at <= time.time()

    plugin.stop()
    stopped = node.loaded()
    assert stopped is not None
    assert (stopped.hash, any(stopped.registered.values())) == ("", False)
    start_plugin()
    node.load(ALL)
    kubelet.allocate(WHOLE)
    again = read_ledger(node.files)
    assert isinstance(again, tuple)
    assert [entry.id for entry in again] == [GPU_C, "MIG-0"]  # what the last process wrote is kept
    assert kubelet.overlaps == []


def test_nothing_is_handed_out_that_the_ledger_cannot_hold(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin()
    node.load(ALL)
    obstacle = node.files.ledger.with_name(".ledger.json.tmp")
    obstacle.mkdir()  # nothing is written over a directory, also by root
    with pytest.raises(grpc.RpcError, match="cannot write its ledger"):
        kubelet.allocate(MIG, ids={"MIG-0"})

    # The first refusal is the last: no further pod is sent here to fail.
    eventually(lambda: [kubelet.healthy(name) for name in (MIG, SLICE, WHOLE)] == [set()] * 3, "nothing is healthy")
    assert {id_ for name in (MIG, SLICE, WHOLE) for id_ in kubelet.resources[name].devices} == {
        d.id for d in ALL.devices
    }
    eventually(lambda: "ledger of allocations cannot be written" in messages(node.loaded()), "the problem is reported")

    obstacle.rmdir()
    eventually(lambda: len(kubelet.healthy(MIG)) == 2 and kubelet.healthy(WHOLE) == {GPU_C}, "back without an Allocate")
    eventually(lambda: not messages(node.loaded()), "no problem is left")
    kubelet.allocate(MIG, ids={"MIG-0"})


@pytest.mark.parametrize("why", ["withdrawn", "not advertised", "for its request"])
def test_what_is_wrong_with_one_pod_leaves_the_list_unchanged(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, why: str
) -> None:
    start_plugin()
    node.load(PluginConfig.of([mig(0), mig(1), mps(0), mps(1)], ["MIG-1"]))
    eventually(lambda: len(kubelet.healthy(SLICE)) == 2, "two healthy slices")
    eventually(lambda: kubelet.healthy(MIG) == {"MIG-0"}, "the MIG device that stays")
    lists = {name: len(kubelet.resources[name].offers) for name in (MIG, SLICE)}
    ids = {"withdrawn": {"MIG-1"}, "not advertised": {"MIG-9"}}.get(why)
    for _ in range(3):
        with pytest.raises(grpc.RpcError):
            kubelet.allocate(MIG if ids else SLICE, count=2, ids=ids)
    assert (kubelet.healthy(MIG), len(kubelet.healthy(SLICE))) == ({"MIG-0"}, 2)
    assert {name: len(kubelet.resources[name].offers) for name in (MIG, SLICE)} == lists


def test_refusals_are_sentences_for_users(node: PluginNode, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin()
    node.load(PluginConfig.of([mig(0), mig(1), mps(0), mps(1)], ["MIG-1"]))
    eventually(lambda: len(kubelet.healthy(SLICE)) == 2, "two healthy slices")
    eventually(lambda: kubelet.healthy(MIG) == {"MIG-0"}, "the MIG device that stays")
    assert refusal(lambda: kubelet.allocate(MIG, ids={"MIG-1"})).startswith(
        f"MIG-1 ({MIG}) is being withdrawn: gpuplan re-partitions this GPU."
    )
    assert "MIG-9 is not advertised as" in refusal(lambda: kubelet.allocate(MIG, ids={"MIG-9"}))
    assert refusal(lambda: kubelet.allocate(SLICE, count=2), grpc.StatusCode.INVALID_ARGUMENT).startswith(
        f"a container can use one MPS slice, this one requests 2 of {SLICE}"
    )
    assert read_ledger(node.files) == ()


def test_pods_are_packed_onto_few_gpus(node: PluginNode, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin()
    node.load(PluginConfig.of([*(mps(n, GPU_A) for n in range(3)), *(mps(n, GPU_B) for n in range(2))]))
    eventually(lambda: len(kubelet.healthy(SLICE)) == 5, "five healthy slices")
    got = [kubelet.allocate(SLICE).envs["NVIDIA_VISIBLE_DEVICES"] for _ in range(5)]
    assert got == [GPU_B, GPU_B, GPU_A, GPU_A, GPU_A]


def test_an_unwritable_ledger_of_the_past_is_kept_aside(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    node.files.ledger.write_text("{")
    start_plugin()
    node.load(ALL)
    assert "earlier Allocates are not known" in messages(node.loaded())
    assert node.files.ledger.with_suffix(".json.unreadable").read_text() == "{"
