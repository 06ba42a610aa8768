"""Which resource names a kubelet takes from a plugin: the cases of the measurement."""

import pytest

from sandbox.kubelet.pods import is_extended_resource
from tests.sandbox.kubelet.fakes import INVALID_NAMES


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "nvidia.com/MIG_1g",
        "nvidia.com/gpu-10gb",
        "nvidia.com/mig-1c.2g.20gb",
        "nvidia.com/mig-1g.10gb.me",
        "nvidia.com/gpu.shared",
        "aliyun.com/gpu-mem",
        "nvidia.com/" + "a" * 63,
    ],
)
def test_valid(name: str) -> None:
    assert is_extended_resource(name)


@pytest.mark.parametrize("name", [*INVALID_NAMES, "cpu", "", "nvidia.com/-gpu"])
def test_invalid(name: str) -> None:
    assert not is_extended_resource(name)
