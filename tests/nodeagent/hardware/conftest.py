"""Fixtures of the hardware tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from partitioning.models import GpuModel
from sandbox.driver.machine import GpuOptions, create
from tests import faults
from tests.builders.models import H100, T4
from tests.nodeagent.hardware.machine import Machine
from tests.quirks import Quirks

QUIRKS = [Quirks(), Quirks(names_mig_device=True, mig_index_gaps=True, compute_variants=True)]


@pytest.fixture(params=QUIRKS, ids=["by-the-header", "other-answers"])
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    cut: GpuOptions = {"mig_enabled": True, "instances": [("3g.40gb", 4)]}
    path = tmp_path / "machine.json"
    gpus: list[tuple[GpuModel, GpuOptions]] = [(H100, cut), (H100, {"mig_enabled": True}), (T4, {}), (H100, {})]
    store = create(path, gpus, "seed")
    undo = faults.install(store, request.param)
    yield Machine(path)
    undo()
