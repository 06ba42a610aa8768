"""A simulated machine as NVIDIA's programs see one: the driver's library, its part of /proc, and the PCI bus in /sys.

Takes a folder, a machine's state and the library built once; runs programs in a mount namespace in which these files
lie where the kernel has its own. Symbols that programs called and that are not simulated are in `not_simulated`.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sandbox.driver.abi.library import Library
from sandbox.driver.boards import board_of, pci_bus
from sandbox.driver.library.build import NAME
from sandbox.driver.library.serve import Server, environment
from sandbox.driver.procfs import COMPUTE_INSTANCES, GPU_INSTANCES, capability_minor, proc_of
from sandbox.driver.store import Store

ENTER = Path(__file__).with_name("enter.sh")
DISPLAY_3D = 0x030200
BARS = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 13
SECONDS = 120.0


class Host:
    """Serves from its start to its stop."""

    def __init__(self, folder: Path, store: Store, library: Path, kind: type[Library] = Library) -> None:
        self.folder = folder
        self.store = store
        (folder / "lib").mkdir(parents=True)
        shutil.copy(library, folder / "lib" / NAME)
        self._server = Server(store, folder / "lib", kind)
        self._write_files()

    @property
    def not_simulated(self) -> set[str]:
        """Symbols that programs called in vain."""
        return self._server.not_simulated

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def command(self, *command: str | Path) -> list[str]:
        """That runs a command on this machine."""
        return ["unshare", "-m", str(ENTER), str(self.folder), *map(str, command)]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """In which a command finds the driver's library."""
        return {**environment(os.environ, self.folder / "lib"), **(more or {})}

    def run(self, *command: str | Path, env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return subprocess.run(
            self.command(*command),
            env=self.environment(env),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def _write_files(self) -> None:
        """As the kernel and the driver have them. Entries of instances follow the machine, those here stay."""
        proc, pci = self.folder / "proc", self.folder / "pci"
        driver = proc_of(self.store.path)
        for folder in (proc, pci, driver / "driver" / "nvidia-caps"):
            folder.mkdir(parents=True, exist_ok=True)
        (proc / "devices").symlink_to(driver / "devices")
        (proc / "driver").symlink_to(driver / "driver")
        (proc / "modules").write_text("nvidia 1 0 - Live 0x0000000000000000 (POE)\n")
        minors = ["config 1", "monitor 2"]
        for gpu in self.store.read()["gpus"]:
            _write_pci(pci / f"0000:{pci_bus(gpu):02x}:00.0", board_of(gpu).pci_device_id)
            minors += _minors(gpu["minor"])
        (driver / "driver" / "nvidia-caps" / "mig-minors").write_text("\n".join(minors) + "\n")


def _minors(gpu: int) -> list[str]:
    """Of every GPU instance and compute instance that there could be."""
    lines = []
    for instance in range(GPU_INSTANCES):
        lines.append(f"gpu{gpu}/gi{instance}/access {capability_minor(gpu, instance)}")
        lines += [
            f"gpu{gpu}/gi{instance}/ci{compute}/access {capability_minor(gpu, instance, compute)}"
            for compute in range(COMPUTE_INSTANCES)
        ]
    return lines


def _write_pci(folder: Path, number: int) -> None:
    """One device of the bus, by its number above its vendor's."""
    folder.mkdir()
    texts = {"vendor": f"{number & 0xFFFF:#06x}", "device": f"{number >> 16:#06x}", "class": f"{DISPLAY_3D:#08x}"}
    for name, text in {**texts, "numa_node": "0", "resource": BARS}.items():
        (folder / name).write_text(f"{text}\n")
    (folder / "config").write_bytes(bytes(256))
