"""The whole plugin and its MPS daemons: who runs, who is ended, and no container without the one of its GPU."""

import json
import os
from dataclasses import replace

import grpc
import pytest

from kube.kubelet_api import deviceplugin_pb2 as dp
from nodeagent.handover.config import PluginConfig, write_config
from sandbox.mps import clients
from tests.nodeagent.device_plugin.conftest import Node, Start
from tests.nodeagent.device_plugin.devices import GPU_A, GPU_B, GPU_C, SLICE, WHOLE, messages, mig, mps, whole
from tests.nodeagent.device_plugin.fake_kubelet import FakeKubelet
from tests.waiting import eventually

pytestmark = pytest.mark.slow

ALLOCATE_SECONDS = 3.0  # less than a command's time limit, for which containers of a daemon that hangs wait


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
    eventually(lambda: len(kubelet.healthy(SLICE)) == 2, "two healthy slices")
    assert [daemon_runs(node, gpu) for gpu in (GPU_A, GPU_B, GPU_C)] == [True, True, False]
    assert state_of(node, GPU_A)["percentage"] == 100.0  # clients carry their own limits
    node.load(PluginConfig.of([mps(0, GPU_B)]))
    eventually(lambda: not daemon_runs(node, GPU_A), "the end of the daemon")
    assert daemon_runs(node, GPU_B)


def test_a_daemon_with_clients_is_not_ended(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin(daemon_check_seconds=0.1)
    node.load(PluginConfig.of([mps(0, GPU_A), mps(0, GPU_B)]))
    eventually(lambda: len(kubelet.healthy(SLICE)) == 2, "two healthy slices")
    path = node.pipe(GPU_A) / ".sandbox-mps.json"
    state = json.loads(path.read_text())
    state["servers"] = {"5000": {"clients": [{"pid": 77}]}}
    path.write_text(json.dumps(state))
    node.load(PluginConfig.of([mps(0, GPU_B)]))
    (node.pipe(GPU_B) / ".sandbox-mps.json").unlink()
    eventually(lambda: daemon_runs(node, GPU_B), "the daemon of the other GPU")  # checks went on meanwhile
    assert json.loads(path.read_text())["servers"] == state["servers"]
    state["servers"] = {}
    path.write_text(json.dumps(state))
    eventually(lambda: not path.exists(), "the end of the file")


def test_slices_without_a_daemon_are_not_given_out(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    node.mps_root.mkdir()
    (node.mps_root / GPU_A[:13]).write_text("a file where its directory should be")
    start_plugin(daemon_check_seconds=0.2)
    config = PluginConfig.of([mps(0, GPU_A), mps(0, GPU_B)])
    loaded = node.load(config)
    eventually(
        lambda: [problem.gpu for problem in (node.loaded() or loaded).errors] == [GPU_A],
        "a problem with this GPU in loaded.json",
    )
    eventually(
        lambda: kubelet.healthy(SLICE) == {f"{GPU_B}::10gb::0"}, "kubelet.healthy(SLICE) == {f'{GPU_B}::10gb::0'}"
    )
    with pytest.raises(grpc.RpcError, match=r"is not ready: .* This is tried again\."):
        kubelet.pre_start(SLICE, f"{GPU_A}::10gb::0")
    kubelet.pre_start(SLICE, f"{GPU_B}::10gb::0")

    (node.mps_root / GPU_A[:13]).unlink()
    eventually(lambda: len(kubelet.healthy(SLICE)) == 2, "two healthy slices")
    eventually(lambda: (node.loaded() or loaded).errors == (), "loaded.json without problems")


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
    eventually(lambda: len(kubelet.healthy(SLICE)) == 1, "one healthy slice")
    (node.pipe(GPU_A) / ".sandbox-mps.json").unlink()
    eventually(lambda: daemon_runs(node, GPU_A), "the daemon")


def test_a_start_of_a_container_brings_the_daemon_back(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin(daemon_check_seconds=3600.0)
    node.load(PluginConfig.of([mps(0, GPU_A)]))
    eventually(lambda: len(kubelet.healthy(SLICE)) == 1, "one healthy slice")
    (node.pipe(GPU_A) / ".sandbox-mps.json").unlink()
    kubelet.pre_start(SLICE, f"{GPU_A}::10gb::0")
    assert daemon_runs(node, GPU_A)


def test_a_resource_that_turns_to_mps_is_registered_again(
    node: Node, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin()
    node.load(PluginConfig.of([whole(GPU_A)]))
    assert not kubelet.resources[WHOLE].newest.options.pre_start_required
    shared = replace(mps(0, GPU_A), resource=WHOLE)
    write_config(node.files, PluginConfig.of([shared]))
    eventually(
        lambda: kubelet.resources[WHOLE].newest.options.pre_start_required,
        "a registration that requires PreStartContainer",
    )
    eventually(lambda: kubelet.healthy(WHOLE) == {shared.id}, "the shared device at the kubelet")
    assert kubelet.overlaps == []


def test_a_missing_mps_command_is_reported(
    node: Node, kubelet: FakeKubelet, start_plugin: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.nodeagent.device_plugin.conftest.STAND_IN", node.root)
    if any((os.access(f"{d}/nvidia-cuda-mps-control", os.X_OK)) for d in os.environ["PATH"].split(":")):
        pytest.skip("this machine has the real command")
    start_plugin()
    node.load(PluginConfig.of([mps(0)]))
    eventually(
        lambda: messages(node.loaded()) == "nvidia-cuda-mps-control is not on PATH",
        "messages(node.loaded()) == 'nvidia-cuda-mps-control is not on PATH'",
    )


def test_daemons_that_hang_delay_no_other_gpu(node: Node, kubelet: FakeKubelet, start_plugin: Start) -> None:
    """More containers of their slices start than the socket has workers, and a pod of another GPU is admitted."""
    start_plugin(daemon_check_seconds=1.0)
    hanging = [f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "cdefg"]
    config = PluginConfig.of([mps(0, GPU_B), *(mps(n, gpu) for gpu in hanging for n in range(8))])
    loaded = node.load(config)
    eventually(lambda: len(kubelet.healthy(SLICE)) == len(config.devices), "all slices healthy")
    for gpu in hanging:
        clients.hang(node.pipe(gpu), 3600)
    plugin = kubelet.resources[SLICE].newest.plugin
    starts = [
        plugin.PreStartContainer.future(dp.PreStartContainerRequest(devices_ids=[device.id]))
        for device in config.devices
        if device.gpu in hanging
    ]

    def refused() -> list[str]:
        return [start.details() for start in starts if start.done()]

    eventually(lambda: len(refused()) >= 16, "sixteen refusals")
    assert all("24 containers wait for MPS control daemons already" in details for details in refused())

    one = dp.ContainerAllocateRequest(devices_ids=[f"{GPU_B}::10gb::0"])
    plugin.Allocate(dp.AllocateRequest(container_requests=[one]), timeout=ALLOCATE_SECONDS)
    assert {start.code() for start in starts} == {grpc.StatusCode.UNAVAILABLE}

    eventually(
        lambda: kubelet.healthy(SLICE) == {f"{GPU_B}::10gb::0"}, "kubelet.healthy(SLICE) == {f'{GPU_B}::10gb::0'}"
    )
    eventually(
        lambda: [problem.gpu for problem in (node.loaded() or loaded).errors] == hanging,
        "a problem with each hanging GPU in loaded.json",
    )
    assert {problem.message for problem in (node.loaded() or loaded).errors} == {
        "nvidia-cuda-mps-control did not answer within 5 s"
    }
    node.load(PluginConfig.of([*config.devices, mig(0, GPU_A)]))  # the main loop goes on
    kubelet.pre_start(SLICE, f"{GPU_B}::10gb::0")

    for gpu in hanging:
        clients.hang(node.pipe(gpu), 0)
    eventually(lambda: len(kubelet.healthy(SLICE)) == len(config.devices), "all slices healthy")
    eventually(lambda: messages(node.loaded()) == "", "messages(node.loaded()) == ''")
