"""Stands in for NVIDIA's GPU feature discovery, which labels a node by its GPUs and by the plugin's config.

Takes the machine and the config besides; returns labels, late, for they go by another object and another program. An
MPS config on a node with a GPU in MIG mode ends it, and a lost GPU does; labels stay then as they were. Must never be
quick: nothing may take its labels for proof. Of engines nothing is simulated, and all GPUs of a node are of one model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandbox.driver.boards import Board, board_of
from sandbox.driver.machine import observe
from sandbox.driver.releases import cuda_version
from sandbox.driver.state import GpuState
from sandbox.nvidia_plugin.config_file import MPS, NO_SHARING, PREFIX, WHOLE, BadConfig, Config
from sandbox.nvidia_plugin.devices import MIXED, NONE, SINGLE, MigDevice, mig_devices_of
from sandbox.nvidia_plugin.programs import MPS_CAPABLE, Program

FAMILIES = {
    (5, 0): "maxwell",
    (6, 0): "pascal",
    (7, 0): "volta",
    (7, 5): "turing",
    (8, 0): "ampere",
    (8, 9): "ada-lovelace",
    (9, 0): "hopper",
    (10, 0): "blackwell",
}
ENGINES = ("copy", "decoder", "encoder", "jpeg", "ofa")
Labels = dict[str, str]


@dataclass(eq=False)
class FeatureDiscovery(Program):
    """One process of it."""

    delay_seconds: float
    _labels: Mapping[str, str] = field(default_factory=dict, init=False)
    _due_at: float = field(default=0.0, init=False)

    def load(self, now: float) -> None:
        try:
            self._labels = self._read()
        except BadConfig as bad:
            self.end(str(bad))
            return
        self._due_at = now + self.delay_seconds

    def labels(self, now: float) -> Mapping[str, str]:
        """Those that have arrived at the Node."""
        return self._labels if self.running and now >= self._due_at else {}

    def _read(self) -> Labels:
        config, gpus = self.config(), self.gpus
        for index, gpu in enumerate(gpus):
            if gpu["lost"]:
                lost = f"error getting device handle for index '{index}': GPU is lost"
                raise BadConfig(f"error creating labeler: error getting devices: {lost}")
        if config.strategy == MPS and any(gpu["mig_mode"] for gpu in gpus):
            unsupported = "failed to check MPS-capable: MPS sharing is not supported for mig devices"
            raise BadConfig(f"error creating labeler: error creating sharing labeler: {unsupported}")
        found = _of_driver(observe(self.machine)["driver_version"])
        found |= _of_gpus(config, gpus)
        if config.mig_strategy != NONE:
            if config.mig_strategy not in (SINGLE, MIXED):
                unknown = f"unknown strategy: {config.mig_strategy}"
                raise BadConfig(
                    "error creating labeler: error creating resource labeler: failed to construct MIG resource "
                    f"labeler: {unknown}"
                )
            found |= {f"{PREFIX}mig.strategy": config.mig_strategy, **_of_mig_devices(config, gpus)}
        return found


def _of_driver(version: str) -> Labels:
    major, minor, *revision = version.split(".")
    cuda = cuda_version(version)
    numbers = {
        "cuda.driver.major": major,
        "cuda.driver.minor": minor,
        "cuda.driver.rev": "".join(revision),
        "cuda.driver-version.full": version,
        "cuda.driver-version.major": major,
        "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": "".join(revision),
        "cuda.runtime.major": cuda // 1000,
        "cuda.runtime.minor": cuda % 1000 // 10,
        "cuda.runtime-version.full": f"{cuda // 1000}.{cuda % 1000 // 10}",
        "cuda.runtime-version.major": cuda // 1000,
        "cuda.runtime-version.minor": cuda % 1000 // 10,
    }
    return _labelled(PREFIX.rstrip("/"), "/", numbers)


def _of_gpus(config: Config, gpus: Sequence[GpuState]) -> Labels:
    """Of one that is not in MIG mode, where there is one; those that are have no replicas."""
    described = next((gpu for gpu in gpus if not gpu["mig_mode"]), gpus[0])
    model = board_of(described).model
    major, minor = model.compute_capability
    whole = _base(config, WHOLE, len(gpus), _spelt(described))
    if described["mig_mode"]:
        plain = {"product": _spelt(described), "replicas": 0, "sharing-strategy": NO_SHARING}
        whole |= _labelled(WHOLE, ".", plain)
    family = next(name for first, name in reversed(FAMILIES.items()) if first <= model.compute_capability)
    of_card = {"memory": described["memory_mib"], "family": family, "compute.major": major, "compute.minor": minor}
    rest = {"machine": "unknown", "mode": "compute"}
    return {
        **whole,
        **_labelled(WHOLE, ".", {**of_card, **rest}),
        f"{PREFIX}mig.capable": str(any(board_of(gpu).mig for gpu in gpus)).lower(),
        f"{PREFIX}vgpu.present": "false",
        MPS_CAPABLE: str(config.strategy == MPS).lower(),
    }


def _of_mig_devices(config: Config, gpus: Sequence[GpuState]) -> Labels:
    cut = [gpu for gpu in gpus if gpu["mig_mode"]]
    there = list(mig_devices_of(gpus))
    by_profile: dict[str, list[MigDevice]] = {}
    for one in there:
        by_profile.setdefault(one.profile.replace("+", "."), []).append(one)
    single = config.mig_strategy == SINGLE
    if single and cut:
        empty = len({one.gpu["uuid"] for one in there}) < len(cut)
        if empty or len(cut) < len(gpus) or len(by_profile) != 1:
            invalid = {"product": f"{_spelt(cut[0])}-MIG-INVALID", "count": 0, "replicas": 0, "sharing-strategy": ""}
            return _labelled(WHOLE, ".", {**invalid, "memory": 0})
    found: Labels = {}
    for profile, devices in by_profile.items():
        resource = WHOLE if single else f"{PREFIX}mig-{profile}"
        found |= _base(config, resource, len(devices), f"{_spelt(devices[0].gpu)}-MIG-{profile}")
        found |= _labelled(resource, ".", _attributes(devices[0]))
    return found


def _attributes(one: MigDevice) -> Mapping[str, object]:
    board = board_of(one.gpu)
    part, _, whole = one.profile.rpartition("c.")
    spec = Board.by_name(board, whole)
    slices = int(part or spec.compute_slices)
    return {
        "memory": board.memory_of(spec),
        "multiprocessors": board.multiprocessors_of(spec) * slices // spec.compute_slices,
        "slices.gi": spec.compute_slices,
        "slices.ci": slices,
        **{f"engines.{engine}": 0 for engine in ENGINES},
    }


def _base(config: Config, resource: str, count: int, product: str) -> Labels:
    replicas = dict(config.replicas).get(resource, 1)
    shared = replicas > 1
    numbers = {
        "product": f"{product}-SHARED" if shared and not config.renamed else product,
        "count": count,
        "replicas": replicas,
        "sharing-strategy": config.strategy if shared else NO_SHARING,
    }
    return _labelled(resource, ".", numbers)


def _labelled(prefix: str, between: str, values: Mapping[str, object]) -> Labels:
    return {f"{prefix}{between}{name}": str(value) for name, value in values.items()}


def _spelt(gpu: GpuState) -> str:
    return gpu["name"].replace(" ", "-")
