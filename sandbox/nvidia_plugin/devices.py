"""Which devices NVIDIA's programs find on a node, by the resource that they belong to.

Takes a config and the machine's GPUs, returns devices by resource, or raises BadConfig in the words of the programs,
which end then, all of them: on one GPU that is lost, on a MIG layout that the strategy has no name for. Must never be
kinder than they are: a suite runs both on the same machines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sandbox.driver.boards import board_of
from sandbox.driver.compute_instances import mig_device_profile, mig_device_slots, mig_device_uuid
from sandbox.driver.procfs import capability_minor
from sandbox.driver.state import GpuState
from sandbox.nvidia_plugin.config_file import PREFIX, WHOLE, BadConfig, Config

NONE, SINGLE, MIXED = "none", "single", "mixed"
SPOILT = "at least one device with migEnabled=true was not configured correctly: "
LAYOUT = "error building device map: error building device map from config.resources: "
VISITING = "error visiting devices: error visiting device: error visiting device: "
UNLIKE = "error visiting MIG device: error visiting MIG device: more than one MIG device type present on node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One that can be allocated: a GPU, a MIG device, or a replica of either."""

    id: str
    uuid: str
    index: str
    paths: tuple[str, ...]
    mig: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """One of a GPU, and what is read of it."""

    gpu: GpuState
    device: Device
    profile: str


def devices_of(config: Config, gpus: Sequence[GpuState]) -> dict[str, tuple[Device, ...]]:
    """By resource, replicas included; resources without a device are left out."""
    found: dict[str, list[Device]] = {}
    for index, gpu in enumerate(gpus):
        if gpu["lost"]:
            lost = f"error getting device handle for index '{index}': GPU is lost"
            raise BadConfig(f"{LAYOUT}error building GPU device map: {lost}")
        if not gpu["mig_mode"] or config.mig_strategy == NONE:
            paths = (f"/dev/nvidia{gpu['minor']}",)
            whole = Device(id=gpu["uuid"], uuid=gpu["uuid"], index=str(index), paths=paths, mig=False)
            found.setdefault(WHOLE, []).append(whole)
    if config.mig_strategy != NONE:
        for resource, device in _mig_devices(config, gpus, whole=bool(found)):
            found.setdefault(resource, []).append(device)
    shared = dict(config.replicas)
    return dict(_replicated(config, name, devices, shared.get(name, 1)) for name, devices in found.items())


def mig_devices_of(gpus: Sequence[GpuState]) -> Iterator[MigDevice]:
    """In the order of their indices, of GPUs in MIG mode."""
    for index, gpu in enumerate(gpus):
        for number, parts in enumerate(mig_device_slots(gpu) if gpu["mig_mode"] else ()):
            if parts is None:
                continue
            minors = (
                capability_minor(gpu["minor"], parts[0]["id"]),
                capability_minor(gpu["minor"], parts[0]["id"], parts[1]["id"]),
            )
            uuid = mig_device_uuid(gpu, *parts)
            caps = (f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors)
            paths = (f"/dev/nvidia{gpu['minor']}", *caps)
            device = Device(id=uuid, uuid=uuid, index=f"{index}:{number}", paths=paths, mig=True)
            yield MigDevice(gpu=gpu, device=device, profile=mig_device_profile(gpu, *parts))


def _mig_devices(config: Config, gpus: Sequence[GpuState], *, whole: bool) -> list[tuple[str, Device]]:
    there = list(mig_devices_of(gpus))
    named = {(one.gpu["model"], one.profile): _resource(config, one, gpus) for one in there}
    for (_, profile), resource in named.items():
        if resource is None:
            unnamed = f"MIG profile '{profile}' does not match any resource patterns"
            raise BadConfig(f"{LAYOUT}error building MIG device map: {unnamed}")
    if config.mig_strategy == SINGLE:
        used = {one.gpu["uuid"] for one in there}
        for index, gpu in enumerate(gpus):
            if gpu["mig_mode"] and gpu["uuid"] not in used:
                empty = f"{SPOILT}error visiting device: device {index} has no MIG devices configured"
                raise BadConfig(f"{LAYOUT}invalid MIG configuration: {empty}")
        if len({(one.gpu["model"], one.profile) for one in there}) > 1:
            raise BadConfig(f"{LAYOUT}invalid MIG configuration: {VISITING}{UNLIKE}")
        if whole and there:
            raise BadConfig(f"{LAYOUT}all devices on the node must be configured with the same migEnabled value")
    return [(resource, one.device) for one in there if (resource := named[one.gpu["model"], one.profile])]


def _resource(config: Config, one: MigDevice, gpus: Sequence[GpuState]) -> str | None:
    """None: there is no name for it.

    With `mixed` it is the first profile of the node that is a part of the device's own: an instance with media engines
    goes by the name of those without, and a compute instance that is a part by that of the whole.
    """
    if config.mig_strategy == SINGLE:
        return WHOLE
    profiles = (spec for gpu in gpus for spec in sorted(board_of(gpu).model.profiles, key=lambda spec: spec.nvml_index))
    names = (spec.name for spec in profiles if config.mig_strategy == MIXED)
    found = next((name for name in names if name in one.profile), None)
    return f"{PREFIX}mig-{found.replace('+', '.')}" if found else None


def _replicated(config: Config, resource: str, devices: list[Device], replicas: int) -> tuple[str, tuple[Device, ...]]:
    if replicas == 1:
        return resource, tuple(devices)
    copies = tuple(replace(device, id=f"{device.uuid}::{n}") for device in devices for n in range(replicas))
    return f"{resource}.shared" if config.renamed else resource, copies
