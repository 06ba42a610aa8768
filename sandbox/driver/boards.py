"""What NVML tells of a card beyond the partitioning model: architecture numbers, PCI ids, the rules of its MIG mode.

In goes a GPU's state or a model, out comes a `Board`. The models themselves, with profiles and placements, are those
of `partitioning.models`; a card whose placements are not known has no MIG here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from partitioning.models import GpuModel, ProfileSpec, known_models
from sandbox.driver.state import GpuState

# Compute capability -> NVML architecture number and the chip number that goes into UUIDs.
ARCHITECTURES = {
    (6, 0): (4, 0x130),
    (7, 0): (5, 0x140),
    (7, 5): (6, 0x164),
    (8, 0): (7, 0x170),
    (8, 6): (7, 0x172),
    (8, 9): (8, 0x192),
    (9, 0): (9, 0x180),
    (10, 0): (10, 0x1A0),
    (10, 3): (10, 0x1A3),
    (12, 0): (10, 0x1B2),
}
NVIDIA_VENDOR = 0x10DE
# PCI device ids of the MIG cards, as the MIG catalogue's sources have them; others show 0.
PCI_DEVICES = {
    "A30-24GB": 0x20B7,
    "A100-40GB": 0x20B0,
    "A100-80GB": 0x20B2,
    "H100-80GB": 0x2330,
    "H100-94GB": 0x2321,
    "H100-96GB": 0x2342,
    "H20-96GB": 0x2329,
    "GH200-144GB": 0x2348,
    "H200-141GB": 0x2335,
    "B200-180GB": 0x2901,
    "GB200-186GB": 0x2941,
    "B300-269GB": 0x3182,
    "GB300-278GB": 0x31C2,
    "RTX-PRO-6000-BLACKWELL-96GB": 0x2BB5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    model: GpuModel
    architecture: int
    chip: int
    pci_device_id: int
    mode_needs_reset: bool  # Ampere resets the GPU to change its MIG mode
    mode_persists: bool  # Ampere keeps the mode over reboots; later chips lose it with the driver
    row_remapping: bool

    @property
    def mig(self) -> bool:
        return self.model.mig_capable and all(spec.starts for spec in self.model.profiles)

    def by_id(self, profile_id: int) -> ProfileSpec | None:
        return next((spec for spec in self.model.profiles if spec.profile_id == profile_id), None)

    def by_nvml_index(self, nvml_index: int) -> ProfileSpec | None:
        return next((spec for spec in self.model.profiles if spec.nvml_index == nvml_index), None)

    def by_name(self, name: str) -> ProfileSpec:
        spec = self.model.profile(name)
        if spec is None:
            raise ValueError(f"{self.model.key} has no MIG profile {name}")
        return spec

    def memory_of(self, spec: ProfileSpec) -> int:
        """MiB of an instance; where no transcript is known, its share of the card in steps of 64 MiB."""
        if spec.memory_mib is not None:
            return spec.memory_mib
        return self.model.memory_mib * spec.size // self.model.slots // 64 * 64

    def multiprocessors_of(self, spec: ProfileSpec) -> int:
        return spec.sm_count if spec.sm_count is not None else 16 * spec.compute_slices


def board_of_model(model: GpuModel) -> Board:
    architecture, chip = ARCHITECTURES.get(model.compute_capability, (0xFFFFFFFF, 0))
    ampere = model.compute_capability < (9, 0)
    return Board(
        model=model,
        architecture=architecture,
        chip=chip,
        pci_device_id=PCI_DEVICES.get(model.key, 0) << 16 | NVIDIA_VENDOR,
        mode_needs_reset=ampere,
        mode_persists=ampere,
        row_remapping=model.compute_capability >= (8, 0),
    )


def board_of(gpu: GpuState) -> Board:
    board = _boards().get(gpu["model"])
    if board is None:
        raise ValueError(f"GPU model {gpu['model']!r} of the simulated machine is not in the catalogue")
    return board


@cache
def _boards() -> dict[str, Board]:
    return {model.key: board_of_model(model) for model in known_models()}
