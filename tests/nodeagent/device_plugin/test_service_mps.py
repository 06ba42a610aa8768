"""Device plugin and supervisor of MPS daemons: who runs, who is ended, and no container without the one of its GPU."""

import json
import os

import grpc
import pytest

from kube.kubelet_api import deviceplugin_pb2 as dp
from nodeagent.handover.config import PluginConfig, write_config
from nodeagent.handover.mps_state import MpsState, read_mps
from sandbox.mps import clients
from tests import mps as daemons
from tests.nodeagent.device_plugin.conftest import PluginNode, Start, StartMps
from tests.nodeagent.device_plugin.devices import GPU_A, GPU_B, GPU_C, SLICE, messages, mig, mps
from tests.nodeagent.device_plugin.fake_kubelet import FakeKubelet
from tests.waiting import eventually

pytestmark = pytest.mark.slow

ALLOCATE_SECONDS = 3.0  # less than a command's time limit


def state_of(node: PluginNode, gpu: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((node.pipe(gpu) / ".sandbox-mps.json").read_text())
    return found


def supervised(node: PluginNode) -> MpsState:
    found = read_mps(node.files)
    return found if isinstance(found, MpsState) else MpsState()


def daemon_runs(node: PluginNode, gpu: str) -> bool:
    return (node.pipe(gpu) / ".sandbox-mps.json").exists()


def test_each_gpu_with_slices_has_a_daemon_until_the_last_slice_goes(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, start_mps: StartMps
) -> None:
    start_plugin()
    start_mps()
    node.load(PluginConfig.of([mps(0, GPU_A), mps(0, GPU_B), mig(0, GPU_C)]))
    eventually(lambda: len(kubelet.healthy(SLICE)) == 2, "two healthy slices")
    assert [daemon_runs(node, gpu) for gpu in (GPU_A, GPU_B, GPU_C)] == [True, True, False]
    assert state_of(node, GPU_A)["limits"] == {"0": 9536 << 20}  # of the largest slice
    node.load(PluginConfig.of([mps(0, GPU_B)]))
    eventually(lambda: not daemon_runs(node, GPU_A), "the end of the daemon")
    assert daemon_runs(node, GPU_B)


def test_a_daemon_with_clients_is_not_ended(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, start_mps: StartMps
) -> None:
    start_plugin()
    start_mps(daemon_check_seconds=0.1)
    node.load(PluginConfig.of([mps(0, GPU_A), mps(0, GPU_B)]))
    eventually(lambda: len(kubelet.healthy(SLICE)) == 2, "two healthy slices")
    path = node.pipe(GPU_A) / ".sandbox-mps.json"
    clients.connect(node.pipe(GPU_A), 77, GPU_A)
    node.load(PluginConfig.of([mps(0, GPU_B)]))
    eventually(lambda: supervised(node).leftover == (GPU_A[:13],), "a daemon that is kept for its client")
    (node.pipe(GPU_B) / ".sandbox-mps.json").unlink()
    eventually(lambda: daemon_runs(node, GPU_B), "the daemon of the other GPU")  # checks went on meanwhile
    kept = json.loads(path.read_text())
    assert [client["pid"] for server in kept["servers"].values() for client in server["clients"]] == [77]
    clients.disconnect(node.pipe(GPU_A), 77)
    eventually(lambda: not path.exists(), "the end of the file")


def test_slices_without_a_daemon_are_not_given_out(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, start_mps: StartMps
) -> None:
    node.mps_root.mkdir()
    (node.mps_root / GPU_A[:13]).write_text("a file where its directory should be")
    start_plugin()
    start_mps(daemon_check_seconds=0.2)
    config = PluginConfig.of([mps(0, GPU_A), mps(0, GPU_B)])
    loaded = node.load(config)
    eventually(
        lambda: [problem.gpu for problem in (node.loaded() or loaded).errors] == [GPU_A],
        "a problem with this GPU in loaded.json",
    )
    eventually(
        lambda: kubelet.healthy(SLICE) == {f"{GPU_B}::10gb::0"}, "kubelet.healthy(SLICE) == {f'{GPU_B}::10gb::0'}"
    )
    for device in config.devices:
        kubelet.allocate(SLICE, ids={device.id})
    with pytest.raises(grpc.RpcError, match=r"is not ready: .* This is tried again\."):
        kubelet.pre_start(SLICE, f"{GPU_A}::10gb::0")
    kubelet.pre_start(SLICE, f"{GPU_B}::10gb::0")

    (node.mps_root / GPU_A[:13]).unlink()
    eventually(lambda: len(kubelet.healthy(SLICE)) == 2, "two healthy slices")
    eventually(lambda: (node.loaded() or loaded).errors == (), "loaded.json without problems")


def test_a_container_never_starts_on_another_gpus_daemon(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, start_mps: StartMps
) -> None:
    """UUIDs that begin alike would share a directory: the daemon that answers there is the first GPU's."""
    start_plugin()
    start_mps()
    twin = f"{GPU_A[:13]}9999-2222-3333-444444444444"
    node.load(PluginConfig.of([mps(0, GPU_A), mps(0, twin)]))
    first, second = sorted((GPU_A, twin))
    eventually(lambda: kubelet.healthy(SLICE) == {f"{first}::10gb::0"}, "the slice of the first GPU")
    for gpu in (first, second):
        kubelet.allocate(SLICE, ids={f"{gpu}::10gb::0"})
    kubelet.pre_start(SLICE, f"{first}::10gb::0")
    with pytest.raises(grpc.RpcError, match="would share one MPS directory"):
        kubelet.pre_start(SLICE, f"{second}::10gb::0")


def test_a_daemon_that_died_is_started_again(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, start_mps: StartMps
) -> None:
    start_plugin()
    start_mps(daemon_check_seconds=0.1)
    node.load(PluginConfig.of([mps(0, GPU_A)]))
    eventually(lambda: len(kubelet.healthy(SLICE)) == 1, "one healthy slice")
    (node.pipe(GPU_A) / ".sandbox-mps.json").unlink()
    eventually(lambda: daemon_runs(node, GPU_A), "the daemon")


def test_a_container_start_is_answered_at_once_from_what_is_known(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, start_mps: StartMps
) -> None:
    start_plugin()
    start_mps(daemon_check_seconds=3600.0)
    node.load(PluginConfig.of([mps(0, GPU_A)]))
    eventually(lambda: len(kubelet.healthy(SLICE)) == 1, "one healthy slice")
    kubelet.allocate(SLICE)
    daemons.hang(node.pipe(GPU_A), 3600)
    kubelet.pre_start(SLICE, f"{GPU_A}::10gb::0")


def test_without_a_supervisor_no_container_starts_and_slices_turn_unhealthy_after_some_patience(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, start_mps: StartMps
) -> None:
    start_plugin(supervisor_patience_seconds=1.0)
    supervisor = start_mps()
    loaded = node.load(PluginConfig.of([mps(0, GPU_A)]))
    eventually(lambda: len(kubelet.healthy(SLICE)) == 1, "one healthy slice")
    clients.connect(node.pipe(GPU_A), 77, GPU_A)
    kubelet.allocate(SLICE)
    supervisor.stop()
    with pytest.raises(grpc.RpcError, match="no supervisor of MPS control daemons runs on this node"):
        kubelet.pre_start(SLICE, f"{GPU_A}::10gb::0")
    write_config(node.files, PluginConfig.of([mps(0, GPU_A)]))  # wakes the plugin, as anything does
    eventually(lambda: kubelet.healthy(SLICE) == set(), "no healthy slice")
    eventually(lambda: "no supervisor" in messages(node.loaded() or loaded), "the reason in loaded.json")

    start_mps()
    eventually(lambda: len(kubelet.healthy(SLICE)) == 1, "one healthy slice")
    assert daemons.connected(node.pipe(GPU_A)) == [77], "the daemon and its client were adopted"


def test_neither_an_end_of_the_plugin_nor_of_the_supervisor_costs_a_client_its_daemon(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, start_mps: StartMps
) -> None:
    plugin, supervisor = start_plugin(), start_mps()
    node.load(PluginConfig.of([mps(0, GPU_A)]))
    eventually(lambda: len(kubelet.healthy(SLICE)) == 1, "one healthy slice")
    clients.connect(node.pipe(GPU_A), 77, GPU_A)
    plugin.stop()
    supervisor.stop()
    start_plugin()
    start_mps()
    eventually(lambda: len(kubelet.healthy(SLICE)) == 1, "one healthy slice again")
    assert daemons.connected(node.pipe(GPU_A)) == [77]
    eventually(lambda: [daemon.ready for daemon in supervised(node).daemons] == [True], "a daemon that answers")
    assert supervised(node).daemons[0].alarms == 0


def test_a_missing_mps_command_is_reported(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, start_mps: StartMps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.nodeagent.device_plugin.conftest.search_path", lambda others: others)
    if any((os.access(f"{d}/nvidia-cuda-mps-control", os.X_OK)) for d in os.environ["PATH"].split(":")):
        pytest.skip("this machine has the real command")
    start_plugin()
    start_mps()
    node.load(PluginConfig.of([mps(0)]))
    eventually(
        lambda: messages(node.loaded()) == "nvidia-cuda-mps-control is not on PATH",
        "messages(node.loaded()) == 'nvidia-cuda-mps-control is not on PATH'",
    )


@pytest.mark.thorough
def test_daemons_that_hang_delay_no_other_gpu(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, start_mps: StartMps
) -> None:
    """Containers of their slices are refused at once, and a pod of another GPU is admitted."""
    start_plugin()
    start_mps(daemon_check_seconds=1.0)
    hanging = [f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "cdefg"]
    config = PluginConfig.of([mps(0, GPU_B), *(mps(n, gpu) for gpu in hanging for n in range(8))])
    loaded = node.load(config)
    eventually(lambda: len(kubelet.healthy(SLICE)) == len(config.devices), "all slices healthy")
    for gpu in hanging:
        daemons.hang(node.pipe(gpu), 3600)
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
    plugin = kubelet.resources[SLICE].newest.plugin
    for device in config.devices:
        if device.gpu in hanging:
            kubelet.allocate(SLICE, ids={device.id})
            with pytest.raises(grpc.RpcError, match="did not answer within 5 s"):
                plugin.PreStartContainer(dp.PreStartContainerRequest(devices_ids=[device.id]), timeout=ALLOCATE_SECONDS)
    one = dp.ContainerAllocateRequest(devices_ids=[f"{GPU_B}::10gb::0"])
    plugin.Allocate(dp.AllocateRequest(container_requests=[one]), timeout=ALLOCATE_SECONDS)
    node.load(PluginConfig.of([*config.devices, mig(0, GPU_A)]))  # the main loops go on
    kubelet.pre_start(SLICE, f"{GPU_B}::10gb::0")

    for gpu in hanging:
        daemons.hang(node.pipe(gpu), 0)
    eventually(lambda: len(kubelet.healthy(SLICE)) == len(config.devices), "all slices healthy")
    eventually(lambda: messages(node.loaded()) == "", "messages(node.loaded()) == ''")
