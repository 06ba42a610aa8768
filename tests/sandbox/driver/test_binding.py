"""The traps of the binding, which the simulation must keep: each was reproduced against the real binding."""

import ctypes
import logging

import pytest

from tests.sandbox.driver.calls import code_of, gpu, nvml
from tests.sandbox.driver.conftest import Simulate


def test_errors_are_unhashable_and_have_the_library_texts(simulate: Simulate) -> None:
    simulate("H100-80GB")
    error = nvml.NVMLError(19)
    assert isinstance(error, nvml.NVMLError_InUse)
    assert str(error) == "In use by another client"
    assert nvml.nvmlErrorString(23) == "Insufficient Resources"
    assert nvml.nvmlErrorString(12345) == "Unknown Error"
    with pytest.raises(TypeError):
        hash(error)
    with pytest.raises(AttributeError):
        _ = error == None  # noqa: E711 - the trap itself


def test_handles_of_one_device_are_not_equal(simulate: Simulate) -> None:
    simulate("H100-80GB")
    first, second = gpu(), gpu()
    assert (first == second) is False
    assert ctypes.cast(first, ctypes.c_void_p).value == ctypes.cast(second, ctypes.c_void_p).value


def test_a_placement_by_value_is_caught(simulate: Simulate, caplog: pytest.LogCaptureFixture) -> None:
    """The real library reads it as an address and takes the process down."""
    simulate("A100-40GB", mig_enabled=True)
    by_value = nvml.c_nvmlGpuInstancePlacement_t(0, 1)
    with caplog.at_level(logging.ERROR):
        assert code_of(nvml.nvmlDeviceCreateGpuInstanceWithPlacement, gpu(), 19, by_value) == 999
    assert "passed by value" in caplog.text
    caplog.clear()


def test_profile_info_versions(simulate: Simulate) -> None:
    simulate("H100-80GB")
    assert nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu(), 2).name == "MIG 3g.40gb"
    other = nvml.c_nvmlGpuInstanceProfileInfo_v2_t()
    other.version = 1
    function = nvml._nvmlGetFunctionPointer("nvmlDeviceGetGpuInstanceProfileInfoV")
    assert function(gpu(), 2, ctypes.byref(other)) == nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_absent_symbols_are_not_found(simulate: Simulate) -> None:
    simulate("H100-80GB")
    with pytest.raises(nvml.NVMLError_FunctionNotFound):
        nvml.nvmlDeviceGetNumGpuCores(gpu())


def test_initialisation_is_counted(simulate: Simulate) -> None:
    simulate("H100-80GB", init=False)
    assert code_of(nvml.nvmlDeviceGetCount) == nvml.NVML_ERROR_UNINITIALIZED
    nvml.nvmlInit()
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    assert nvml.nvmlDeviceGetCount() == 1
    nvml.nvmlShutdown()
    assert code_of(nvml.nvmlDeviceGetCount) == nvml.NVML_ERROR_UNINITIALIZED
    assert code_of(nvml.nvmlShutdown) == nvml.NVML_ERROR_UNINITIALIZED


def test_null_and_foreign_handles_are_invalid(simulate: Simulate) -> None:
    simulate("H100-80GB")
    assert code_of(nvml.nvmlDeviceGetName, None) == 2
    assert code_of(nvml.nvmlDeviceGetName, 1 << 60) == 2
    assert code_of(nvml.nvmlGpuInstanceGetInfo, gpu()) == 2
