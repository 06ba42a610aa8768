"""A simulated machine beneath pynvml for the length of one test: in its process, and behind the shared library."""

import ctypes
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from sandbox.driver import machine
from sandbox.driver.abi.library import Library
from sandbox.driver.install import install as install_in_process
from sandbox.driver.library.build import NAME, build
from sandbox.driver.library.serve import Server
from sandbox.driver.machine import GpuOptions
from sandbox.driver.store import Store
from tests.builders.models import MODELS
from tests.faults import install
from tests.quirks import Quirks
from tests.sandbox.driver.calls import nvml

Simulate = Callable[..., Path]
Place = Callable[[Store, type[Library]], Callable[[], None]]


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    return tmp_path / "machine.json"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared library."""
    found = build(tmp_path_factory.mktemp("library"))
    if found is None:
        pytest.skip("no C compiler (cc) on PATH")
    return found


@pytest.fixture(params=["in process", "library"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Puts the driver beneath the binding, which either way calls C functions by address."""
    if request.param == "in process":
        return install_in_process
    return Behind(request.getfixturevalue("built"), tmp_path)


class Behind:
    """The binding loads a copy of the library of its own, which finds the socket in its folder."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._library = Path(shutil.copy(library, folder / NAME))

    def __call__(self, store: Store, library: type[Library]) -> Callable[[], None]:
        server = Server(store, self._library.parent, library)
        server.start()
        before = pynvml.nvmlLib
        _load(ctypes.CDLL(str(self._library)))

        def undo() -> None:
            _load(before)
            server.stop()

        return undo


def _load(library: object) -> None:
    setattr(pynvml, "nvmlLib", library)  # noqa: B010 - the binding declares it None
    pynvml._nvmlGetFunctionPointer_cache.clear()


@pytest.fixture
def simulate(state_file: Path, place: Place, caplog: pytest.LogCaptureFixture) -> Iterator[Simulate]:
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
        undo.append(install(store, quirks, place))
        if init:
            nvml.nvmlInit()
        return state_file

    yield make
    for uninstall in undo:
        uninstall()
    unexpected = [record.getMessage() for record in caplog.records if record.name.startswith("sandbox.driver")]
    assert unexpected == [], "the simulated driver broke where the real one would have crashed"
