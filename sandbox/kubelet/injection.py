"""What a container gets from its device plugins, merged with what its pod requests.

Takes the Allocate answers of one container, returns `ContainerOptions`: environment, mounts, CDI names. First answer
wins per key, in a random order of resources, as in the kubelet; the pod's own environment wins over all. Pure. Device
nodes and annotations in an answer are ignored: no plugin here gives any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from kube.kubelet_api import deviceplugin_pb2 as api
from sandbox import cdi


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    container_path: str
    host_path: str
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOptions:
    env: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    cdi_names: tuple[str, ...] = ()
    nodes: tuple[cdi.Node, ...] = ()
    """Device nodes with their numbers, from the CDI names."""

    def resolved(self, folders: Sequence[Path]) -> "ContainerOptions":
        """As the container runtime makes the container. Raises CdiError where it cannot."""
        if not self.cdi_names:
            return self
        got = cdi.inject(folders, self.cdi_names)
        mounts = {mount.container_path: mount for mount in self.mounts}
        for path, host_path, read_only in got.mounts:
            mounts[path] = Mount(container_path=path, host_path=host_path, read_only=read_only)
        return replace(self, env={**self.env, **got.env}, mounts=tuple(mounts.values()), nodes=got.nodes)


def merge(
    answers: Mapping[str, api.ContainerAllocateResponse], own_env: tuple[tuple[str, str], ...], random: Random
) -> ContainerOptions:
    """`answers` is by resource."""
    order = sorted(answers)
    random.shuffle(order)
    env: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    cdi_names: set[str] = set()
    for answer in (answers[resource] for resource in order):
        for name, value in sorted(answer.envs.items()):
            env.setdefault(name, value)
        for mount in answer.mounts:
            given = Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            mounts.setdefault(mount.container_path, given)
        cdi_names |= {device.name for device in answer.cdi_devices}
    return ContainerOptions(env=env | dict(own_env), mounts=tuple(mounts.values()), cdi_names=tuple(sorted(cdi_names)))
