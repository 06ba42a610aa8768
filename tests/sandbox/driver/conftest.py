"""A simulated machine beneath pynvml for the length of one test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.driver import machine
from sandbox.driver.machine import GpuOptions
from tests.builders.models import MODELS
from tests.faults import install
from tests.quirks import Quirks
from tests.sandbox.driver.calls import nvml

Simulate = Callable[..., Path]


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    return tmp_path / "machine.json"


@pytest.fixture
def simulate(state_file: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Simulate]:
    """`simulate("H100-80GB", …, mig_enabled=True)`: GPUs of these models, all with the same options."""
    undo: list[Callable[[], None]] = []

    def make(
        *keys: str,
        driver_version: str = machine.DRIVER_VERSION,
        quirks: Quirks | None = None,
        init: bool = True,
        **options: object,
    ) -> Path:
        store = machine.create(
            state_file,
            [(MODELS[key], GpuOptions(**options)) for key in keys],  # type: ignore[typeddict-item] # passed through
            "test",
            driver_version=driver_version,
        )
        undo.append(install(store, quirks))
        if init:
            nvml.nvmlInit()
        return state_file

    yield make
    for uninstall in undo:
        uninstall()
    unexpected = [record.getMessage() for record in caplog.records if record.name.startswith("sandbox.driver")]
    assert unexpected == [], "the simulated driver broke where the real one would have crashed"
