"""NVIDIA's own programs, built once, and simulated machines for them; skipped with a reason where either cannot be."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.driver.library.build import build
from sandbox.driver.machine import GpuOptions, create
from tests.builders.models import MODELS
from tests.e2e.rig.controlplane import Missing, Places
from tests.e2e.rig.nvidia import programs
from tests.e2e.rig.nvidia.host import Host
from tests.e2e.rig.realkubelet import obstacle

Machine = Callable[..., Host]


@pytest.fixture(scope="session")
def places() -> Places:
    return Places.of(os.environ, Path.home())


@pytest.fixture(scope="session")
def program(places: Places) -> Callable[[str, str], Path]:
    """A program of a pinned module; the first call builds them."""

    def find(module: str, name: str) -> Path:
        reason = obstacle()
        if reason:
            pytest.skip(f"no mount namespace here: {reason}")
        found = programs.find(module, places, report=print)
        if isinstance(found, Missing):
            (pytest.fail if found.broken else pytest.skip)(f"no {name}: {found.message}")
        return found / name

    return find


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver's, which machines copy."""
    found = build(tmp_path_factory.mktemp("library"))
    if found is None:
        pytest.skip("no C compiler (cc) on PATH")
    return found


@pytest.fixture
def machine(library: Path, tmp_path: Path) -> Iterator[Machine]:
    """`machine("A100-40GB", …, mig_enabled=True)`: GPUs of these models, all with the same options."""
    hosts: list[Host] = []

    def make(*keys: str, **options: object) -> Host:
        folder = tmp_path / f"host{len(hosts)}"
        gpus = [(MODELS[key], GpuOptions(**options)) for key in keys]  # type: ignore[typeddict-item] # passed through
        host = Host(folder, create(folder / "machine.json", gpus, "test"), library)
        host.start()
        hosts.append(host)
        return host

    yield make
    for host in hosts:
        host.stop()
