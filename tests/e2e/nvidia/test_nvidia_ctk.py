"""NVIDIA's nvidia-ctk finds on a simulated machine what it finds on a real one.

Its management document is that of our stand-in for the toolkit, on the same machine; and for each MIG device it names
the device nodes that gpuplan's agent reads for it.
"""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.cdi.device_numbers import read_device_numbers
from sandbox.driver import toolkit
from sandbox.driver.compute_instances import mig_device_uuid, mig_devices
from sandbox.driver.procfs import proc_of
from tests.e2e.nvidia.conftest import Machine
from tests.e2e.rig.nvidia import driver_root
from tests.e2e.rig.nvidia.host import Host
from tests.e2e.rig.nvidia.programs import TOOLKIT

pytestmark = pytest.mark.timeout(3000)  # the first run builds the program
LAYOUT = [("3g.20gb", 0), ("1g.5gb", 4), ("1g.5gb", 5)]


class Toolkit:
    """nvidia-ctk on a machine that has the files of a driver, and the device nodes of everything that there is."""

    def __init__(self, program: Path, host: Host) -> None:
        self.host = host
        self.root = driver_root.install(host)
        self._program = program
        machine = host.store.read()
        self.version = machine["driver_version"]
        self.minors = tuple(gpu["minor"] for gpu in machine["gpus"])

    def expected(self) -> dict[str, Any]:
        """What the stand-in writes."""
        return toolkit.document(str(self.root), self.version, self.minors)

    def printed(self, mode: str, *more: str) -> dict[str, Any]:
        """What nvidia-ctk prints."""
        roots = (f"--driver-root={self.root}", f"--dev-root={self.root}", f"--nvidia-cdi-hook-path={toolkit.HOOK}")
        done = self.host.run(self._program, "cdi", "generate", f"--mode={mode}", *roots, *more)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = yaml.safe_load(done.stdout)
        return found


@pytest.fixture
def ctk(program: Callable[[str, str], Path], machine: Machine) -> Toolkit:
    host = machine("A100-40GB", mig_enabled=True, instances=LAYOUT)
    return Toolkit(program(TOOLKIT, "nvidia-ctk"), host)


def test_the_management_document_is_that_of_the_stand_in(ctk: Toolkit) -> None:
    printed = ctk.printed("management", "--vendor=management.nvidia.com")
    nodes = printed["devices"][0]["containerEdits"]["deviceNodes"]
    expected = ctk.expected()
    own = expected["devices"][0]["containerEdits"].pop("deviceNodes")
    of_instances = [node for node in nodes if node not in own]
    del printed["devices"][0]["containerEdits"]["deviceNodes"]
    assert printed == expected
    assert all(node in nodes for node in own)
    assert all("/nvidia-caps/" in node["path"] for node in of_instances)
    assert ctk.host.not_simulated == set()


def test_mig_devices_have_the_nodes_that_the_agent_reads(ctk: Toolkit) -> None:
    devices = {device["name"]: device for device in ctk.printed("nvml", "--device-name-strategy=uuid")["devices"]}
    numbers = read_device_numbers(proc_of(ctk.host.store.path))
    gpu = ctk.host.store.read()["gpus"][0]
    read = {}
    for instance, compute in mig_devices(gpu):
        caps = (numbers.capabilities[0, instance["id"], None], numbers.capabilities[0, instance["id"], compute["id"]])
        nodes = [(numbers.majors["nvidia"], 0), *((numbers.majors["nvidia-caps"], minor) for minor in caps)]
        read[mig_device_uuid(gpu, instance, compute)] = nodes
    printed = {
        name: [(node["major"], node.get("minor", 0)) for node in device["containerEdits"]["deviceNodes"]]
        for name, device in devices.items()
        if name != "all"
    }
    assert printed == read
    assert len(read) == len(LAYOUT)
    assert ctk.host.not_simulated == set()


def test_what_the_page_on_security_switches_off_is_on_by_default_and_off_by_its_command(
    program: Callable[[str, str], Path], tmp_path: Path
) -> None:
    ctk, config = program(TOOLKIT, "nvidia-ctk"), tmp_path / "config.toml"
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    (command,) = re.findall(r"`nvidia-ctk (config --in-place --set [^`]*)`", page)
    setting = command.split()[-1].removesuffix("=false")

    subprocess.run([ctk, "config", "default", f"--output={config}"], check=True)
    assert f"#{setting} = true" in config.read_text().splitlines()
    subprocess.run([ctk, *command.split(), f"--config={config}"], check=True)
    assert f"{setting} = false" in config.read_text().splitlines()
    assert f"`{setting.upper().replace('-', '_')}=false`" in page
