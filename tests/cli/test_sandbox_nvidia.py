"""`gpuplan sandbox run` on the example whose node NVIDIA's device plugin serves, on the embedded control plane alone.

On a real one the controller needs rights that a value of the chart gives, and the garbage collector removes the pods of
DaemonSets that there are in name only.
"""

import pytest

from tests.cli.sandbox_runs import GUIDE, Examples, ready

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(300)]
FOLDER = "mps-nvidia-plugin"
EXTRAS = ("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED")
"""NVIDIA's plugin sets them unless its config says otherwise; its toolkit mounts what the node has of each."""


def test_a_node_that_nvidias_plugin_serves_goes_from_its_label_to_running_pods(examples: Examples) -> None:
    result = examples.result(FOLDER)
    (plan,) = result["plans"]
    assert (ready(plan)["status"], ready(plan)["reason"]) == ("True", "Confirmed")
    assert {pod["phase"] for pod in result["pods"]} == {"Running"}
    assert {pod["namespace"] for pod in result["pods"]} == {"default", "gpu-operator"}
    by_pod = {got["pod"]: got for got in result["containers"] if got["namespace"] == "default"}
    assert set(by_pod) == {"first", "second"}
    (gpu,) = plan["status"]["gpus"]
    row = next(line for line in GUIDE.read_text(encoding="utf-8").splitlines() if f"examples/{FOLDER}`:" in line)
    for got in by_pod.values():
        pipe = "/mps/nvidia.com/gpu.shared/pipe"
        mps = {"CUDA_MPS_PIPE_DIRECTORY": pipe, "NVIDIA_VISIBLE_DEVICES": gpu["uuid"]}
        assert got["environment"] == mps | dict.fromkeys(EXTRAS, "enabled")
        assert (got["mounts"], got["deviceNodes"]) == (["/dev/shm", pipe], [])
        shown = (f"CUDA_MPS_PIPE_DIRECTORY={pipe}", "NVIDIA_VISIBLE_DEVICES", *got["mounts"])
        assert all(f"`{text}`" in row for text in shown)
