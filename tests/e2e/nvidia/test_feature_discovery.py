"""NVIDIA's GPU feature discovery labels simulated nodes as its stand-in does, and as our readers of labels believe.

Every model of the catalogue with each MIG strategy, and the configs that share GPUs; label by label. What is read of
them: the model and its memory, and whether the labels are about MIG devices.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crds.v1alpha1.gpu_labels import counts_mig_devices
from crds.v1alpha1.names import LABEL_COUNT, LABEL_MEMORY, LABEL_PRODUCT
from partitioning.models import GpuModel, known_models, model_for_product
from sandbox.driver.boards import Board
from sandbox.driver.machine import GpuOptions
from sandbox.nvidia_plugin.discovery import FeatureDiscovery
from tests.e2e.nvidia.conftest import Machine
from tests.e2e.rig.nvidia.host import Host
from tests.e2e.rig.nvidia.programs import DEVICE_PLUGIN
from tests.sandbox.nvidia_plugin.plugin_cases import mig, mps, slicing

pytestmark = pytest.mark.timeout(3000)  # the first run builds the program
PLAIN = "version: v1\n"
RENAMED = "renameByDefault: true, "
SHARED = {
    "time-slicing": slicing(3),
    "renamed": slicing(3, more=RENAMED),
    "mps": mps(4),
    "another resource": slicing(2, name="nvidia.com/mig-1g.5gb"),
    "single": slicing(2, flags=mig("single")),
    "mixed": slicing(2, name="nvidia.com/mig-1g.5gb", flags=mig("mixed")),
    "mps with mixed": mps(2, flags=mig("mixed")),
    "another strategy": PLAIN + mig("both"),
    "refused": "version: v2\n",
}
LAYOUTS = {
    "whole": GpuOptions(),
    "two equal": GpuOptions(mig_enabled=True, instances=[("1g.5gb", 0), ("1g.5gb", 1)]),
    "two kinds": GpuOptions(mig_enabled=True, instances=[("1g.5gb", 0), ("3g.20gb", 4)]),
    "media": GpuOptions(mig_enabled=True, instances=[("1g.5gb+me", 0)]),
    "empty": GpuOptions(mig_enabled=True),
}


class Sides:
    """The real program and its stand-in on one machine; each gives its labels, or why it ended."""

    def __init__(self, program: Path, host: Host, text: str) -> None:
        config = host.folder / "config.yaml"
        config.write_text(text)
        flags = (f"--config-file={config}", "--oneshot", "--no-timestamp", "--use-node-feature-api=false")
        done = host.run(program, *flags, "--output-file=")
        errors = [line for line in done.stderr.splitlines() if line.startswith("E")]
        self.real: object = errors[-1].partition("] ")[2] if done.returncode else _labels(done.stdout)
        stand_in = FeatureDiscovery(host.store.path, lambda: text, delay_seconds=0)
        stand_in.start(0)
        self.stand_in: object = stand_in.ended or dict(stand_in.labels(0))

    @property
    def labels(self) -> dict[str, str]:
        assert isinstance(self.real, dict), self.real
        return self.real

    def assert_alike(self) -> None:
        assert self.stand_in == self.real, json.dumps([self.stand_in, self.real], indent=1)


def _labels(printed: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in printed.splitlines() if line.startswith("nvidia.com/"))


@pytest.fixture(scope="session")
def discovery(program: Callable[[str, str], Path]) -> Path:
    return program(DEVICE_PLUGIN, "gpu-feature-discovery")


@pytest.mark.parametrize("model", known_models(), ids=lambda model: model.key)
def test_models(model: GpuModel, discovery: Path, machine: Machine) -> None:
    plain = Sides(discovery, machine(model.key, model.key), PLAIN)
    plain.assert_alike()
    assert model_for_product(plain.labels[LABEL_PRODUCT]) is model
    assert (plain.labels[LABEL_COUNT], plain.labels[LABEL_MEMORY]) == ("2", str(model.memory_mib))
    assert not counts_mig_devices(plain.labels)
    if not Board(model=model).mig:
        return
    smallest = min(model.profiles, key=lambda spec: (spec.size, spec.name))
    largest = max(model.profiles, key=lambda spec: spec.size)
    for strategy in ("none", "single", "mixed"):
        host = machine(model.key, mig_enabled=True, instances=[(smallest.name, smallest.starts[0])])
        cut = Sides(discovery, host, PLAIN + mig(strategy))
        cut.assert_alike()
        assert model_for_product(cut.labels[LABEL_PRODUCT]) is model
        assert counts_mig_devices(cut.labels) == (strategy == "single")
        assert host.not_simulated == set()
    whole = machine(model.key, mig_enabled=True, instances=[(largest.name, largest.starts[0])])
    Sides(discovery, whole, PLAIN + mig("mixed")).assert_alike()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_configs(layout: str, discovery: Path, machine: Machine) -> None:
    host = machine("A100-40GB", "A100-40GB", **LAYOUTS[layout])
    texts = {**SHARED, **{f"MIG {how}": PLAIN + mig(how) for how in ("none", "single", "mixed")}}
    for text in texts.values():
        Sides(discovery, host, text).assert_alike()


def test_a_lost_gpu_ends_it(discovery: Path, machine: Machine) -> None:
    host = machine("A100-40GB", "A100-40GB")
    with host.store.writing() as found:
        found["gpus"][1]["lost"] = True
    sides = Sides(discovery, host, PLAIN)
    assert isinstance(sides.real, str)
    sides.assert_alike()
