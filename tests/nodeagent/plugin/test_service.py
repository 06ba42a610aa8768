"""The whole plugin against a strict kubelet: what pods get, what is refused, and when a config is in force."""

import json
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

import grpc
import pytest

from nodeagent.plugin.config import Device, DeviceKind, Loaded, PluginConfig, read_ledger, write_config
from nodeagent.plugin.service import PluginService
from tests.nodeagent.plugin.conftest import Node, Running
from tests.nodeagent.plugin.fake_kubelet import FakeKubelet, eventually

MIG = "nvidia.com/mig-1g.10gb"
SLICE = "nvidia.com/gpu-10gb"
WHOLE = "nvidia.com/gpu"
GPU_A, GPU_B, GPU_C = (f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "abc")

Start = Callable[..., Running]


def mig(number: int, gpu: str = GPU_A) -> Device:
    return Device(id=f"MIG-{number}", resource=MIG, gpu=gpu, kind=DeviceKind.MIG, memory_mib=9728)


def mps(number: int, gpu: str = GPU_B, thread_percent: int | None = None) -> Device:
    return Device(
        id=f"{gpu}::10gb::{number}",
        resource=SLICE,
        gpu=gpu,
        kind=DeviceKind.MPS,
        memory_mib=9536,
        thread_percent=thread_percent,
    )


def whole(gpu: str = GPU_C) -> Device:
    return Device(id=gpu, resource=WHOLE, gpu=gpu, kind=DeviceKind.WHOLE)


ALL = PluginConfig.of([mig(0), mig(1), mps(0), mps(1, thread_percent=25), whole()])


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    call_error = cast(grpc.Call, caught.value)
    assert call_error.code() is grpc.StatusCode.FAILED_PRECONDITION
    return call_error.details() or ""


def test_everything_is_registered_listed_and_confirmed(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin()
    loaded = node.load(ALL)
    assert loaded.registered == {WHOLE: True, SLICE: True, MIG: True}
    assert loaded.errors == ()
    assert abs(loaded.loaded_at - time.time()) < 60
    assert kubelet.healthy(MIG) == {"MIG-0", "MIG-1"}
    assert kubelet.healthy(SLICE) == {f"{GPU_B}::10gb::0", f"{GPU_B}::10gb::1"}
    assert kubelet.healthy(WHOLE) == {GPU_C}
    options = {name: known.newest.options for name, known in kubelet.resources.items()}
    assert {name: o.pre_start_required for name, o in options.items()} == {MIG: False, SLICE: True, WHOLE: False}
    assert all(o.get_preferred_allocation_available for o in options.values())
    assert (kubelet.overlaps, [kubelet.open_streams(r) for r in (MIG, SLICE, WHOLE)]) == ([], [1, 1, 1])


def test_answers_of_allocate(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
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
    }
    assert [(m.container_path, m.host_path, m.read_only) for m in first.mounts] == [(pipe, pipe, False)]
    second = kubelet.allocate(SLICE, ids={f"{GPU_B}::10gb::1"})
    assert second.envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert not first.devices
    assert not first.cdi_devices


def test_the_ledger_names_each_id_before_the_answer(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
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
    node: Node, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin()
    node.load(ALL)
    node.files.ledger.mkdir()  # a rename over a directory fails, also for root
    with pytest.raises(grpc.RpcError, match="cannot write its ledger"):
        kubelet.allocate(MIG, ids={"MIG-0"})


def test_refusals_are_sentences_for_users(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin()
    node.load(PluginConfig.of([mig(0), mig(1), mps(0), mps(1)], ["MIG-1"]))
    assert kubelet.healthy(MIG) == {"MIG-0"}
    assert refusal(lambda: kubelet.allocate(MIG, ids={"MIG-1"})).startswith(
        f"MIG-1 ({MIG}) is being withdrawn: gpuplan re-partitions this GPU."
    )
    assert "MIG-9 is not offered as" in refusal(lambda: kubelet.allocate(MIG, ids={"MIG-9"}))
    assert refusal(lambda: kubelet.allocate(SLICE, count=2)).startswith(
        f"a container can use one MPS slice, this one asks for 2 of {SLICE}"
    )
    assert read_ledger(node.files) is None


def test_a_withdrawal_is_confirmed_only_after_running_allocates(
    node: Node, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    plugin = start_plugin()
    first = node.load(PluginConfig.of([mig(0), mig(1)]))
    withdrawn = PluginConfig.of([mig(1)], ["MIG-0"])
    with plugin.service._offer.allocating(MIG, ["MIG-0"]):  # an Allocate that takes its time
        write_config(node.files, withdrawn)
        eventually(lambda: kubelet.healthy(MIG) == {"MIG-1"})
        assert "is being withdrawn" in refusal(lambda: kubelet.allocate(MIG, ids={"MIG-0"}))
        loaded = node.loaded()
        assert loaded is not None
        assert loaded.hash == first.hash
    node.load(withdrawn)


def test_a_resource_that_fell_to_nothing_stays_registered(
    node: Node, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    plugin = start_plugin()
    node.load(PluginConfig.of([mig(0)]))
    empty = node.load(PluginConfig.of([]))
    assert empty.registered == {MIG: True}
    assert kubelet.resources[MIG].lists[-1] == frozenset()
    plugin.stop()
    eventually(lambda: kubelet.open_streams(MIG) == 0)
    start_plugin()
    eventually(lambda: kubelet.open_streams(MIG) == 1)  # and over a restart of the plugin
    eventually(lambda: (node.loaded() or empty).boot_token != empty.boot_token)
    assert kubelet.resources[MIG].lists[-1] == frozenset()


def test_a_bad_config_leaves_the_last_good_one_in_force(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin()
    good = node.load(PluginConfig.of([mig(0)]))
    text = node.files.config.read_text()
    for bad, sentence in (("{", "config.json: Invalid JSON"), (text.replace("9728", "1"), "config.json: hash is")):
        node.files.config.write_text(bad)
        eventually(partial(says, node, sentence))
        assert (node.loaded() or good).hash == good.hash
        assert kubelet.healthy(MIG) == {"MIG-0"}
    node.files.config.unlink()
    eventually(lambda: "config.json is gone" in messages(node.loaded()))
    assert kubelet.allocate(MIG).envs == {"NVIDIA_VISIBLE_DEVICES": "MIG-0"}
    node.load(PluginConfig.of([mig(0), mig(1)]))
    assert messages(node.loaded()) == ""


def says(node: Node, sentence: str) -> bool:
    return sentence in messages(node.loaded())


def messages(loaded: Loaded | None) -> str:
    return "; ".join(problem.message for problem in loaded.errors) if loaded else ""


def test_every_config_file_is_answered_also_one_with_the_old_text(
    node: Node, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin()
    first = node.load(ALL)
    written = node.files.loaded.stat().st_mtime_ns
    write_config(node.files, ALL)
    eventually(lambda: node.files.loaded.stat().st_mtime_ns > written)
    second = node.loaded()
    assert second is not None
    assert second.loaded_at > first.loaded_at
    assert replace(second, loaded_at=first.loaded_at) == first


def test_without_a_config_the_plugin_says_that_it_lives(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin()
    eventually(node.loaded)
    loaded = node.loaded()
    assert loaded is not None
    assert (loaded.hash, loaded.registered, loaded.errors) == ("", {}, ())
    assert re.fullmatch(r"[0-9a-f-]{36}", loaded.boot_token)


def test_pods_are_packed_onto_few_gpus(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin()
    node.load(PluginConfig.of([*(mps(n, GPU_A) for n in range(3)), *(mps(n, GPU_B) for n in range(2))]))
    got = [kubelet.allocate(SLICE).envs["NVIDIA_VISIBLE_DEVICES"] for _ in range(5)]
    assert got == [GPU_B, GPU_B, GPU_A, GPU_A, GPU_A]


def test_an_unwritable_ledger_of_the_past_is_kept_aside(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    node.files.directory.mkdir(parents=True)
    node.files.ledger.write_text("{")
    start_plugin()
    node.load(ALL)
    assert "earlier Allocates are not known" in messages(node.loaded())
    assert node.files.ledger.with_suffix(".json.unreadable").read_text() == "{"


# --- MPS daemons


def state_of(node: Node, gpu: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((node.pipe(gpu) / ".sandbox-mps.json").read_text())
    return found


def daemon_runs(node: Node, gpu: str) -> bool:
    return (node.pipe(gpu) / ".sandbox-mps.json").exists()


def test_each_gpu_with_slices_has_a_daemon_until_the_last_slice_goes(
    node: Node, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin()
    node.load(PluginConfig.of([mps(0, GPU_A), mps(0, GPU_B), mig(0, GPU_C)]))
    assert [daemon_runs(node, gpu) for gpu in (GPU_A, GPU_B, GPU_C)] == [True, True, False]
    assert state_of(node, GPU_A)["percentage"] == 100.0  # clients carry their own limits
    node.load(PluginConfig.of([mps(0, GPU_B)]))
    eventually(lambda: not daemon_runs(node, GPU_A))
    assert daemon_runs(node, GPU_B)


def test_a_daemon_with_clients_is_not_ended(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin(daemon_check_seconds=0.1)
    node.load(PluginConfig.of([mps(0, GPU_A), mps(0, GPU_B)]))
    path = node.pipe(GPU_A) / ".sandbox-mps.json"
    state = json.loads(path.read_text())
    state["servers"] = {"5000": {"clients": [{"pid": 77}]}}
    path.write_text(json.dumps(state))
    node.load(PluginConfig.of([mps(0, GPU_B)]))
    (node.pipe(GPU_B) / ".sandbox-mps.json").unlink()
    eventually(lambda: daemon_runs(node, GPU_B))  # checks went on meanwhile
    assert json.loads(path.read_text())["servers"] == state["servers"]
    state["servers"] = {}
    path.write_text(json.dumps(state))
    eventually(lambda: not path.exists())


def test_slices_without_a_daemon_are_not_given_out(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    node.mps_root.mkdir()
    (node.mps_root / GPU_A[:13]).write_text("a file where its directory should be")
    start_plugin(daemon_check_seconds=0.2)
    config = PluginConfig.of([mps(0, GPU_A), mps(0, GPU_B)])
    loaded = node.load(config)
    assert [problem.gpu for problem in loaded.errors] == [GPU_A]
    assert kubelet.healthy(SLICE) == {f"{GPU_B}::10gb::0"}
    with pytest.raises(grpc.RpcError, match=r"is not ready: .* This is tried again\."):
        kubelet.pre_start(SLICE, f"{GPU_A}::10gb::0")
    kubelet.pre_start(SLICE, f"{GPU_B}::10gb::0")

    (node.mps_root / GPU_A[:13]).unlink()
    eventually(lambda: len(kubelet.healthy(SLICE)) == 2)
    eventually(lambda: (node.loaded() or loaded).errors == ())


def test_a_container_never_starts_on_another_gpus_daemon(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    """UUIDs that begin alike would share a directory: the daemon that answers there is the first GPU's."""
    start_plugin()
    twin = f"{GPU_A[:13]}9999-2222-3333-444444444444"
    node.load(PluginConfig.of([mps(0, GPU_A), mps(0, twin)]))
    first, second = sorted((GPU_A, twin))
    kubelet.pre_start(SLICE, f"{first}::10gb::0")
    with pytest.raises(grpc.RpcError, match="would share one MPS directory"):
        kubelet.pre_start(SLICE, f"{second}::10gb::0")


def test_a_daemon_that_died_is_started_again(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin(daemon_check_seconds=0.1)
    node.load(PluginConfig.of([mps(0, GPU_A)]))
    (node.pipe(GPU_A) / ".sandbox-mps.json").unlink()
    eventually(lambda: daemon_runs(node, GPU_A))


def test_a_start_of_a_container_brings_the_daemon_back(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin(daemon_check_seconds=3600.0)
    node.load(PluginConfig.of([mps(0, GPU_A)]))
    (node.pipe(GPU_A) / ".sandbox-mps.json").unlink()
    kubelet.pre_start(SLICE, f"{GPU_A}::10gb::0")
    assert daemon_runs(node, GPU_A)


def test_a_resource_that_turns_to_mps_is_registered_anew(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin()
    node.load(PluginConfig.of([whole(GPU_A)]))
    assert not kubelet.resources[WHOLE].newest.options.pre_start_required
    shared = replace(mps(0, GPU_A), resource=WHOLE)
    write_config(node.files, PluginConfig.of([shared]))
    eventually(lambda: kubelet.resources[WHOLE].newest.options.pre_start_required)
    eventually(lambda: kubelet.healthy(WHOLE) == {shared.id})
    assert kubelet.overlaps == []


def test_a_plugin_without_the_mps_command_says_so(
    node: Node, kubelet: FakeKubelet, start_plugin: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.nodeagent.plugin.conftest.STAND_IN", node.root)
    if any((os.access(f"{d}/nvidia-cuda-mps-control", os.X_OK)) for d in os.environ["PATH"].split(":")):
        pytest.skip("this machine has the real command")
    start_plugin()
    assert messages(node.load(PluginConfig.of([mps(0)]))) == "nvidia-cuda-mps-control is not on PATH"


def test_a_pass_that_fails_is_not_the_end_of_the_plugin(
    node: Node, kubelet: FakeKubelet, start_plugin: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()
    tend = PluginService._tend_daemons

    def fails_once(service: PluginService) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("a broken world")
        tend(service)

    monkeypatch.setattr(PluginService, "_tend_daemons", fails_once)
    start_plugin(failed_seconds=0.01)

    node.load(PluginConfig.of([mig(0)]))
    assert failed.is_set()
