"""NVIDIA's device plugin and MPS control daemon answer in every case as it is recorded, and so as their stand-ins do.

Field by field: names of resources, ids, health, topology, what containers get, refusals, files and limits of the MPS
daemon, why a program ends, and what SIGHUP changes. A new version of theirs that answers otherwise fails here.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from sandbox.driver.machine import create
from tests.builders.models import MODELS
from tests.e2e.rig.nvidia.host import Host
from tests.e2e.rig.nvidia.plugin import RealPrograms
from tests.e2e.rig.nvidia.programs import DEVICE_PLUGIN
from tests.sandbox.nvidia_plugin.offers import kubelet
from tests.sandbox.nvidia_plugin.plugin_cases import CASES, RECORDED, Case, State, state, steps
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(3000)  # the first run builds the programs
NOT_SIMULATED = {"nvmlEventSetCreate"}
"""Without events the plugin goes on, with its health checks off."""


@pytest.fixture(scope="session")
def programs(program: Callable[[str, str], Path]) -> Path:
    return program(DEVICE_PLUGIN, "nvidia-device-plugin").parent


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, for a socket has room for 107 characters."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_real_programs_answer_as_recorded(case: Case, programs: Path, library: Path, folder: Path) -> None:
    recorded: list[State] = json.loads(RECORDED.read_text())[case.name]
    gpus = [(MODELS[key], options) for key, options in case.gpus]
    host = Host(folder / "h", create(folder / "machine.json", gpus, "test"), library)
    host.start()
    with kubelet(host.folder / "kubelet") as at:
        side = RealPrograms(programs, host, at)
        try:
            for number in steps(side, case):
                eventually(
                    lambda expected=recorded[number]: seen(side, case) == expected,  # type: ignore[misc] # has a default
                    json.dumps(recorded[number], indent=1),
                    seen=lambda: json.dumps(seen(side, case), indent=1) + side.said(),
                )
        finally:
            side.stop()
            host.stop()
        assert at.offers() == {}
    assert host.not_simulated <= NOT_SIMULATED


def seen(side: RealPrograms, case: Case) -> State | None:
    """None while a plugin comes or goes."""
    try:
        return state(side, case)
    except (grpc.RpcError, OSError):
        return None
