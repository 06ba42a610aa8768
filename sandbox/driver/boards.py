"""Describes a card beyond the partitioning model: the rules of its MIG mode.

Takes a GPU's state or a model and returns a `Board`. The models themselves, with profiles and placements, are those
of `partitioning.models`; a card whose placements are not known has no MIG here.
"""

from dataclasses import dataclass
from functools import cache

from partitioning.models import GpuModel, ProfileSpec, known_models
from sandbox.driver.state import GpuState

VENDOR = 0x10DE
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
"""As pci.ids and the default configuration of NVIDIA's mig-parted have them."""
FIRST_BUS = 0x10


def pci_bus(gpu: GpuState) -> int:
    """The number of its bus; the domain and the numbers of device and function are 0."""
    return FIRST_BUS + gpu["minor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    model: GpuModel

    @property
    def row_remapping(self) -> bool:
        return self.model.compute_capability >= (8, 0)

    @property
    def mig(self) -> bool:
        return self.model.mig_capable and all(spec.starts for spec in self.model.profiles)

    @property
    def pci_device_id(self) -> int:
        """The card's above the vendor's; 0 for one that no program here filters by."""
        return PCI_DEVICES.get(self.model.key, 0) << 16 | VENDOR

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


def board_of(gpu: GpuState) -> Board:
    board = _boards().get(gpu["model"])
    if board is None:
        raise ValueError(f"GPU model {gpu['model']!r} of the simulated machine is not in the catalogue")
    return board


@cache
def _boards() -> dict[str, Board]:
    return {model.key: Board(model=model) for model in known_models()}
