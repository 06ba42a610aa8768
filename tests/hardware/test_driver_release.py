"""A person works on the driver of a real GPU: gpuplan lets go of it, names who has not, and opens it again.

What the processes of this machine have open shows it; no GPU is reset, and no mode changed. A CUDA program has the
files open by which the agent knows that a device is in use, with MPS and without.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crds.v1alpha1.names import CLOSED, LABEL_DRIVER
from kube import apply
from nodeagent.cdi.device_numbers import read_device_numbers
from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.observed.processes import Process, Processes
from tests.hardware.node import CLIENT
from tests.hardware.words import Words
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(180)


def with_gpu_open() -> tuple[Process, ...]:
    """Processes with a GPU, or the node for control, open; this one is not among them."""
    major = read_device_numbers(Path("/proc")).major("nvidia")
    assert major is not None
    found = Processes().holders({(major, minor) for minor in range(256)}, everyone=True)
    assert isinstance(found, tuple), found
    return found


def programs() -> list[str]:
    return sorted(each.program for each in with_gpu_open())


def of_gpuplan(words: Words) -> list[Process]:
    """Of them, its own and the MPS daemons that it started."""
    children = {child.pid for child in words.cluster.supervisor.children.values()}
    return [each for each in with_gpu_open() if each.pid in children or "mps" in each.program]


def own_files() -> list[str]:
    """Files of the driver that this process has open."""
    names = [os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")]
    return sorted(name for name in names if name.startswith("/dev/nvidia"))


@pytest.fixture
def outsider() -> Iterator[subprocess.Popen[bytes]]:
    """A CUDA program of the node, in no pod."""
    with subprocess.Popen([sys.executable, str(CLIENT), "256", "120"], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline().startswith(b"{")
        yield program
        program.kill()


def released(words: Words) -> tuple[str, str]:
    """The condition's status and message."""
    conditions = {found["type"]: found for found in words.plan()["status"].get("conditions", ())}
    found = conditions.get("DriverReleased", {"status": "", "message": ""})
    return found["status"], found["message"]


def hold_off(words: Words, value: str | None) -> None:
    apply.merge_patch(words.cluster.api, "/api/v1/nodes/real", {"metadata": {"labels": {LABEL_DRIVER: value}}})


def test_a_closed_library_has_no_file_open() -> None:
    driver = NvmlDriver()
    driver.observe_gpu(0)
    assert any(name == "/dev/nvidia0" for name in own_files())
    driver.release()
    assert own_files() == []


@pytest.mark.parametrize(("pod", "resource"), [("slice", "nvidia.com/gpu-10gb"), ("whole", "nvidia.com/gpu")])
def test_a_program_in_a_pod_has_its_gpu_open(words: Words, pod: str, resource: str) -> None:
    before = {each.pid for each in with_gpu_open()}
    words.create(pod, resource)
    words.client(pod)
    new = [each for each in with_gpu_open() if each.pid not in before]
    words.report(f"{resource}: these programs have the GPU open: {sorted(each.program for each in new)}")
    assert any(each.program.startswith("python") for each in new)
    assert any("mps" in each.program for each in new) == (pod == "slice")
    words.delete(pod)


def test_a_pod_with_a_slice_is_named_until_it_has_ended(words: Words) -> None:
    words.create("holder", "nvidia.com/gpu-10gb")
    words.client("holder")
    hold_off(words, CLOSED)
    eventually(lambda: "default/holder" in released(words)[1], "the pod is named", seen=words.state)
    assert released(words)[0] == "False"
    words.delete("holder")
    eventually(lambda: released(words)[0] == "True", "the driver is released", seen=words.state)
    words.report(f"released: {released(words)[1]} Programs with the GPU open: {programs()}")
    assert not of_gpuplan(words)


def test_a_program_of_the_node_is_named(words: Words, outsider: subprocess.Popen[bytes]) -> None:
    seen = eventually(lambda: released(words)[1] if "in no pod" in released(words)[1] else "", "it is named")
    words.report(f"while a CUDA program runs: {seen}")
    assert released(words)[0] == "True"
    assert outsider.poll() is None


def test_an_agent_that_starts_again_opens_nothing(words: Words) -> None:
    words.restart("agent")
    eventually(lambda: released(words)[0] == "True", "it is released still", seen=words.state)
    assert not of_gpuplan(words)


def test_pods_run_again_once_the_label_has_gone(words: Words) -> None:
    hold_off(words, None)
    began = time.monotonic()
    words.create("again", "nvidia.com/gpu-10gb")
    assert words.client("again")["devices"] == 1
    words.report(f"a pod runs {time.monotonic() - began:.1f} s after the label has gone")
    assert released(words)[0] != "True"
    assert of_gpuplan(words)
    words.delete("again")
