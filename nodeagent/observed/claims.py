"""Finds the devices of claims on the GPUs that are here.

Takes the usage of one moment and the observed GPUs, returns it with the UUID of each device that NVIDIA's DRA driver
names by minor, profile and place. One that cannot be found must never count as none: its id stays without a UUID, so
that any partition may be in use.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from nodeagent.hardware.driver import ObservedGpu
from nodeagent.hardware.gpu_ids import names_a_device
from nodeagent.observed.claim_records import claim_id
from nodeagent.observed.usage import Usage

_DEVICE = re.compile(r"gpu-(?P<gpu>\d+)(?:-mig-(?P<profile>.+)-(?P<first>\d+)-(?P<second>\d+))?")


def located(usage: Usage, gpus: Sequence[ObservedGpu]) -> Usage:
    """The same with the UUIDs of the devices that are here."""
    names = {i: _located(i, gpus) for i in (*usage.held, *usage.doubtful) if i.startswith(claim_id(""))}
    # Of a device that is not here any more the driver's record has the UUID: its holder concerns no other.
    named = {(i.partition(" ")[0], usage.held.get(i)) for i in names if names_a_device(i)}
    lost = {i for i, found in names.items() if found == i and (i, usage.held.get(i)) in named}
    held = {names.get(i, i): pod for i, pod in usage.held.items() if i not in lost}
    doubtful = {names.get(i, i): why for i, why in usage.doubtful.items() if i not in lost}
    return replace(usage, held=held, doubtful=doubtful)


def _located(device_id: str, gpus: Sequence[ObservedGpu]) -> str:
    found = _DEVICE.fullmatch(device_id.removeprefix(claim_id("")))
    if found is None:
        return device_id
    # The driver's earlier versions had the index in the name, and not every driver tells the minor.
    candidates = [gpu for gpu in gpus if int(found["gpu"]) in (gpu.index, gpu.minor) or gpu.minor is None]
    return " ".join([device_id, *(uuid for gpu in candidates for uuid in _uuids(gpu, found))])


def _uuids(gpu: ObservedGpu, name: re.Match[str]) -> list[str]:
    """Of the instance there; of the GPU where it is the device, or its instances are not known."""
    if name["profile"] is None or gpu.problem:
        return [gpu.uuid]
    first, second = int(name["first"]), int(name["second"])
    return [
        compute.uuid
        for instance in gpu.instances
        if (
            # Names were <GI profile id>-<start>-<size> once.
            (instance.placed.start, instance.placed.size) == (first, second)
            if name["profile"].isdecimal()
            else (instance.placed.start, _plain(instance.placed.profile)) == (second, _plain(name["profile"]))
        )
        for compute in instance.compute
    ]


def _plain(profile: str) -> str:
    """As the driver writes it in names: `1g.10gb+me` is `1g10gb-me`, and of `1c.3g.40gb` the GPU instance counts."""
    return re.sub(r"^\d+c(?=\d+g)", "", profile.replace(".", "").replace("+", "-"))
