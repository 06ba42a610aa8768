"""Versions of the software, and calls by the names and structures of other versions of the header."""

import pynvml

from sandbox.driver.abi.compute import compute_profile_info
from sandbox.driver.abi.devices import nvmlInitWithFlags
from sandbox.driver.abi.handles import Handle
from sandbox.driver.abi.mig import gpu_instance_profile_info
from sandbox.driver.abi.pointers import Address, put_int, put_struct, put_text
from sandbox.driver.abi.registry import HANDLE, OUT, UINT, reads
from sandbox.driver.releases import cuda_version
from sandbox.driver.state import Machine


@reads(initialises=1)
def nvmlInit_v2(machine: Machine) -> None:
    nvmlInitWithFlags(machine, 0)


@reads(OUT, UINT)
def nvmlSystemGetNVMLVersion(machine: Machine, text: Address, length: int) -> None:
    put_text(text, length, f"13.{machine['driver_version']}")


@reads(OUT)
def nvmlSystemGetCudaDriverVersion(machine: Machine, version: Address) -> None:
    put_int(version, cuda_version(machine["driver_version"]))


@reads(OUT)
def nvmlSystemGetCudaDriverVersion_v2(machine: Machine, version: Address) -> None:
    nvmlSystemGetCudaDriverVersion(machine, version)


@reads(HANDLE, UINT, OUT)
def nvmlDeviceGetGpuInstanceProfileInfo(machine: Machine, handle: Handle, index: int, info: Address) -> None:
    answer = pynvml.c_nvmlGpuInstanceProfileInfo_t()
    gpu_instance_profile_info(machine, handle, index, answer)
    put_struct(info, answer)


@reads(HANDLE, UINT, UINT, OUT)
def nvmlGpuInstanceGetComputeInstanceProfileInfo(
    machine: Machine, handle: Handle, index: int, engine: int, info: Address
) -> None:
    answer = pynvml.c_nvmlComputeInstanceProfileInfo_t()
    compute_profile_info(machine, handle, index, engine, answer)
    put_struct(info, answer)
