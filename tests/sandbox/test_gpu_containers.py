"""Which containers compute on a simulated GPU."""

from pathlib import Path

import pytest

from sandbox.driver.machine import create, observe
from sandbox.gpu_containers import GpuContainers
from sandbox.kubelet.injection import ContainerOptions, Mount
from sandbox.kubelet.runtime import ContainerRecord, ContainerRequest, ContainerState
from sandbox.mps.control import start
from tests.builders.models import H100
from tests.mps import connected


def container(visible: str, options: ContainerOptions | None = None) -> ContainerRecord:
    request = ContainerRequest(
        pod_uid="uid",
        namespace="default",
        pod="pod",
        container="main",
        options=options or ContainerOptions(env={"NVIDIA_VISIBLE_DEVICES": visible}),
        device_ids={},
        run_seconds=1,
        exit_code=0,
        start_seconds=0,
        stop_seconds=0,
        unkillable_seconds=0,
    )
    return ContainerRecord(container_id="c", pid=10_001, request=request, state=ContainerState.CREATED)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    create(tmp_path / "gpus.json", [(H100, {})], "seed")
    return tmp_path / "gpus.json"


def processes(machine: Path) -> int:
    return sum(len(gpu["processes"]) for gpu in observe(machine)["gpus"])


@pytest.mark.parametrize("visible", ["all", "none", "void", ""])
def test_a_container_that_names_no_device_starts_and_computes_on_none(machine: Path, visible: str) -> None:
    assert GpuContainers(machine).container_started(container(visible)) is None
    assert processes(machine) == 0


def test_a_container_computes_on_the_device_that_it_names(machine: Path) -> None:
    uuid = observe(machine)["gpus"][0]["uuid"]
    assert GpuContainers(machine).container_started(container(uuid)) is None
    assert processes(machine) == 1


def test_a_device_that_is_not_there_keeps_the_container_from_starting(machine: Path) -> None:
    assert "unknown device" in str(GpuContainers(machine).container_started(container("GPU-absent")))


def test_a_client_of_mps_finds_the_daemon_behind_its_mount(machine: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    start(str(pipe), {})
    uuid = observe(machine)["gpus"][0]["uuid"]
    environment = {"NVIDIA_VISIBLE_DEVICES": uuid, "CUDA_MPS_PIPE_DIRECTORY": "/mps/pipe"}
    mount = Mount(container_path="/mps/pipe", host_path=str(pipe), read_only=False)
    options = ContainerOptions(env=environment, mounts=(mount,))
    assert GpuContainers(machine).container_started(container("", options)) is None
    assert len(connected(pipe)) == 1
