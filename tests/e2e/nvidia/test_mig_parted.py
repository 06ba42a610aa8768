"""NVIDIA's mig-parted makes its default configurations on every model of the catalogue where our packing finds room.

It asks the driver for an instance by profile alone, one after the other, in each order until all are there; so the
simulated driver chooses the places by NVIDIA's rule. Both must accept the same, and what it makes must be a layout of
our tables.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from partitioning.layouts import EMPTY, Layout, check_layout, instance_at
from partitioning.models import GpuModel, known_models
from partitioning.packing import Packed, pack
from sandbox.driver.boards import Board
from sandbox.driver.state import GpuState
from tests.e2e.nvidia.conftest import Machine
from tests.e2e.rig.controlplane import Places
from tests.e2e.rig.nvidia.host import Host
from tests.e2e.rig.nvidia.programs import MIG_PARTED, source_of

pytestmark = pytest.mark.timeout(3000)  # the first run builds the program
MODULE = "github.com/NVIDIA/mig-parted"
DEFAULT = "deployments/systemd/config-default.yaml"
MODELS = [model for model in known_models() if Board(model=model).mig]
NOT_SIMULATED: set[str] = set()
"""What it calls of the driver, and is refused."""


@pytest.fixture(scope="session")
def default(program: Callable[[str, str], Path], places: Places) -> Path:
    program(MIG_PARTED, "nvidia-mig-parted")
    return source_of(MIG_PARTED, MODULE, places) / DEFAULT


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.key)
def test_its_default_configurations(
    model: GpuModel, default: Path, program: Callable[[str, str], Path], machine: Machine
) -> None:
    parted = program(MIG_PARTED, "nvidia-mig-parted")
    host = machine(model.key, mig_enabled=True)
    tried, wrong = 0, []
    for name, wanted in configurations(default, Board(model=model)).items():
        if not any(model.profile(profile) for profile in wanted):
            continue
        tried += 1
        wrong += [f"{name} {wanted}: {fault}" for fault in faults(model, wanted, applied(host, parted, default, name))]
    assert wrong == []
    assert tried > 0
    assert host.not_simulated == NOT_SIMULATED
    print(f"{model.key}: {tried} configurations")


def configurations(file: Path, board: Board) -> dict[str, dict[str, int]]:
    """What each named configuration wants of a GPU of this card."""
    number = f"0x{board.pci_device_id >> 16:04X}{board.pci_device_id & 0xFFFF:04X}"
    found = {}
    for name, groups in yaml.safe_load(file.read_text())["mig-configs"].items():
        for group in groups:
            filters = group.get("device-filter", number)
            if number in ([filters] if isinstance(filters, str) else filters) and group.get("mig-devices"):
                found[name] = group["mig-devices"]
    return found


def applied(host: Host, parted: Path, file: Path, name: str) -> tuple[bool, GpuState, Any]:
    """Whether it was applied, the GPU afterwards, and what mig-parted exports of it."""
    done = host.run(parted, "apply", "--config-file", file, "--selected-config", name)
    exported = yaml.safe_load(host.run(parted, "export").stdout)
    return done.returncode == 0, host.store.read()["gpus"][0], exported["mig-configs"]["current"][0]["mig-devices"]


def faults(model: GpuModel, wanted: Mapping[str, int], result: tuple[bool, GpuState, Any]) -> list[str]:
    """How it differs from what our packing says."""
    accepted, gpu, exported = result
    if not all(wanted_name in (spec.name for spec in model.profiles) for wanted_name in wanted):
        # A name that another driver gives: mig-parted finds it nowhere, clears the GPU, and reports success
        # (https://github.com/NVIDIA/mig-parted/issues/227). gpuplan reads both.
        return [] if accepted and not gpu["gpu_instances"] else [f"mig-parted made {gpu['gpu_instances']}"]
    ours = pack(model, pinned=EMPTY, requested=wanted)
    if accepted != isinstance(ours, Packed):
        return [f"mig-parted {'applied' if accepted else 'refused'} it, and our packing says {ours}"]
    if not isinstance(ours, Packed):
        return []
    made = Layout.of(there for i in gpu["gpu_instances"] if (there := instance_at(model, i["profile"], i["start"])))
    impossible = check_layout(model, made)
    said = [impossible] if impossible else []
    if counts(model, made) != counts(model, ours.layout):
        said.append(f"mig-parted made {made}, our packing {ours.layout}")
    if exported != wanted:
        said.append(f"mig-parted exports {exported}")
    return said


def counts(model: GpuModel, layout: Layout) -> list[str]:
    return sorted(spec.name for instance in layout if (spec := model.profile(instance.profile)))
