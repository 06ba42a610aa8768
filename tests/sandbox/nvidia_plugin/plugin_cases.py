"""What NVIDIA's device plugin and MPS control daemon are held to: one list of cases, and how a side's answer is read.

A case has GPUs and texts of a config: the programs start with the first, and get SIGHUP for each other one. After each
the state is read: what a kubelet is offered and answered, what lies in the root of the MPS daemon, and why a program
has ended. `recorded.json` holds the states of the real programs; the stand-in and the real ones are compared with it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sandbox.driver.compute_instances import mig_device_uuid, mig_devices
from sandbox.driver.machine import GpuOptions, observe
from sandbox.driver.processes import find
from sandbox.driver.store import Store
from sandbox.mps.statefile import STATE_FILE, load
from sandbox.nvidia_plugin.mps_daemon import NO_DAEMON, tell
from tests.sandbox.nvidia_plugin.offers import Kubelet

RECORDED = Path(__file__).with_name("recorded.json")
State = dict[str, Any]
GPUS = tuple[tuple[str, GpuOptions], ...]
LOSE = "lose"
"""In the place of a text: GPU 1 falls off the bus before the signal."""
QUIT = "quit"
"""So, too: the MPS daemon has ended by itself before the signal."""
ENDED = f"error stopping plugins from previous run: {NO_DAEMON}"
KUBELET = "kubelet: "
"""Before a text: there is no signal, but a new kubelet."""

H100 = ("H100-80GB", GpuOptions())
A100 = ("A100-40GB", GpuOptions())
H100_CUT = ("H100-80GB", GpuOptions(mig_enabled=True, instances=[("1g.10gb", 0), ("1g.10gb", 1)]))
A100_CUT = ("A100-40GB", GpuOptions(mig_enabled=True, instances=[("3g.20gb", 0), ("1g.5gb", 4)]))
A100_SAME = ("A100-40GB", GpuOptions(mig_enabled=True, instances=[("1g.5gb", 0), ("1g.5gb", 1)]))
A100_MEDIA = ("A100-40GB", GpuOptions(mig_enabled=True, instances=[("1g.5gb+me", 0), ("2g.10gb", 2)]))
A100_EMPTY = ("A100-40GB", GpuOptions(mig_enabled=True))
V100 = ("V100-32GB", GpuOptions())
PLAIN = "version: v1\n"


def shared(kind: str, replicas: int, *, name: str = "nvidia.com/gpu", more: str = "", flags: str = "") -> str:
    sharing = f"sharing: {{{kind}: {{{more}resources: [{{name: {name}, replicas: {replicas}}}]}}}}\n"
    return f"{PLAIN}{flags}{sharing}"


def mps(replicas: int, **more: str) -> str:
    return shared("mps", replicas, **more)


def slicing(replicas: int, **more: str) -> str:
    return shared("timeSlicing", replicas, **more)


def mig(strategy: str) -> str:
    return f"flags: {{migStrategy: {strategy}}}\n"


def plugin_flags(text: str) -> str:
    return f"{PLAIN}flags: {{plugin: {{{text}}}}}\n"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    gpus: GPUS
    texts: tuple[str, ...]
    refuses: bool = False
    """A device refuses its mode: which others were changed before is chance; and the daemon ends at its next try."""


RENAMED = "renameByDefault: true, "
ONE = "failRequestsGreaterThanOne: true, "
TWO_NAMES = f"{PLAIN}sharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: 2}}, "
CASES = (
    Case("no config", (H100,), ("",)),
    Case("plain", (H100, H100), (PLAIN,)),
    Case("no GPU", (), (PLAIN,)),
    Case("two models", (H100, A100), (PLAIN,)),
    Case("an unknown key", (H100,), (f"{PLAIN}nonsense: 1\n",)),
    Case("an empty sharing", (H100,), (f"{PLAIN}sharing: {{mps: null}}\n",)),
    *(Case(f"time-slicing {n}", (H100, A100), (slicing(n),)) for n in (2, 3, 10)),
    Case("time-slicing, renamed", (H100, A100), (slicing(2, more=RENAMED),)),
    Case("time-slicing, one a request", (H100, A100), (slicing(2, more=ONE),)),
    Case("time-slicing of a short name", (H100,), (slicing(2, name="gpu"),)),
    Case("time-slicing of another resource", (H100,), (slicing(2, name="nvidia.com/mig-1g.10gb"),)),
    Case("time-slicing of one resource twice", (H100,), (f"{TWO_NAMES}{{name: gpu, replicas: 3}}]}}}}\n",)),
    Case("time-slicing of chosen devices", (H100, H100), (slicing(2, name="gpu, devices: [0]"),)),
    Case("time-slicing with a name", (H100,), (slicing(2, name="gpu, rename: gpu.x"),)),
    *(Case(f"mps {n}", (H100, H100), (mps(n),)) for n in (2, 3, 7, 48)),
    Case("mps, renamed", (H100, H100), (mps(2, more=RENAMED),)),
    Case("mps of a short name", (H100,), (mps(2, name="gpu"),)),
    Case("mps beats time-slicing", (H100,), (f"{mps(2).rstrip()[:-1]}, {slicing(4)[len(PLAIN) + 10 :]}",)),
    Case("mps, too many", (H100,), (mps(49),)),
    Case("mps of an old model", (V100,), (mps(16),)),
    Case("mps of an old model, too many", (V100,), (mps(17),)),
    Case("mps of another resource", (H100,), (mps(2, name="nvidia.com/mig-1g.10gb"),)),
    Case("mps with a GPU in MIG mode", (H100, A100_CUT), (mps(2),), refuses=True),
    Case("mps with single", (A100_SAME,), (mps(2, flags=mig("single")),), refuses=True),
    Case("mps with single, no MIG", (A100,), (mps(2, flags=mig("single")),)),
    Case("mps with mixed", (A100,), (mps(2, flags=mig("mixed")),)),
    *(Case(f"MIG {how}", (A100_CUT, A100), (PLAIN + mig(how),)) for how in ("none", "single", "mixed", "both")),
    *(Case(f"MIG {how}, equal", (A100_SAME, A100_SAME), (PLAIN + mig(how),)) for how in ("none", "single", "mixed")),
    *(Case(f"MIG {how}, unequal", (A100_CUT,), (PLAIN + mig(how),)) for how in ("single", "mixed")),
    *(Case(f"MIG {how}, media", (A100_MEDIA,), (PLAIN + mig(how),)) for how in ("single", "mixed")),
    *(Case(f"MIG {how}, empty", (A100_EMPTY,), (PLAIN + mig(how),)) for how in ("none", "single", "mixed")),
    *(Case(f"MIG {how}, no MIG mode", (A100,), (PLAIN + mig(how),)) for how in ("single", "mixed")),
    *(Case(f"MIG {how}, no MIG at all", (V100,), (PLAIN + mig(how),)) for how in ("single", "mixed")),
    Case("MIG mixed, two models", (A100_CUT, H100_CUT), (PLAIN + mig("mixed"),)),
    Case("MIG single, shared", (A100_SAME,), (slicing(2, flags=mig("single")),)),
    Case("MIG single, shared, renamed", (A100_SAME,), (slicing(2, flags=mig("single"), more=RENAMED),)),
    Case("MIG mixed, shared", (A100_CUT,), (slicing(2, name="mig-1g.5gb", flags=mig("mixed")),)),
    Case("MIG mixed, GPUs shared", (A100_CUT, A100), (slicing(2, flags=mig("mixed")),)),
    Case("volume mounts", (H100, A100), (plugin_flags("deviceListStrategy: volume-mounts"),)),
    Case("two lists", (H100,), (plugin_flags("deviceListStrategy: [envvar, volume-mounts]"),)),
    Case("ids by index", (H100, A100), (plugin_flags("deviceIDStrategy: index"),)),
    Case("device nodes", (H100, A100), (plugin_flags("passDeviceSpecs: true"),)),
    Case(
        "device nodes of MIG devices",
        (A100_CUT,),
        (f"{PLAIN}flags: {{migStrategy: mixed, plugin: {{passDeviceSpecs: true}}}}\n",),
    ),
    Case(
        "MIG devices by index",
        (A100_CUT,),
        (f"{PLAIN}flags: {{migStrategy: mixed, plugin: {{deviceIDStrategy: index}}}}\n",),
    ),
    Case("no extras", (H100,), (f"{PLAIN}flags: {{gdsEnabled: false, gdrcopyEnabled: false, mofedEnabled: false}}\n",)),
    *(
        Case(f"refused: {what}", (H100,), (text,))
        for what, text in {
            "another version": "version: v2\n",
            "no YAML": "a: [",
            "one replica": mps(1),
            "no name": slicing(2, name="''"),
            "a foreign name": slicing(2, name="amd.com/gpu"),
            "no resources": f"{PLAIN}sharing: {{timeSlicing: {{resources: []}}}}\n",
            "a text for a number": slicing(2).replace("2", "'2'"),
        }.items()
    ),
    Case("a lost GPU", (H100, H100), (LOSE,)),
    Case("a lost GPU and a signal", (H100, H100), (PLAIN, LOSE)),
    Case("to mps and back", (H100, H100), (PLAIN, mps(4), PLAIN)),
    Case("to other replicas", (H100,), (mps(2), mps(4), slicing(3))),
    Case("to another name", (H100,), (mps(2), mps(2, more=RENAMED))),
    Case("to a config that is refused", (H100,), (slicing(2), mps(1))),
    Case("to too many", (H100,), (mps(2), mps(49))),
    Case("a daemon that ended alone", (H100, H100), (mps(2), QUIT)),
    Case("a new kubelet", (H100, H100), (PLAIN, KUBELET + slicing(2))),
    Case("a new kubelet and other replicas", (H100,), (mps(2), KUBELET + mps(4))),
    Case("to another strategy", (A100_SAME,), (PLAIN, PLAIN + mig("single"), PLAIN + mig("mixed"))),
)


class Side(Protocol):
    """The real programs or their stand-ins, on one machine and one kubelet."""

    kubelet: Kubelet
    machine: Path
    mps_root: Path

    def start(self, text: str) -> None: ...

    def sighup(self, text: str) -> None:
        """New content and a signal to both."""

    def write(self, text: str) -> None:
        """New content, and no signal."""

    def look(self) -> None:
        """Let the plugin notice what has changed around it."""

    def programs(self) -> State:
        """Of each: why it has ended, or whether it waits for another try."""


def state(side: Side, case: Case) -> State:
    """As it is now, with names in the place of UUIDs and of the folders of this run."""
    gpus = observe(side.machine)["gpus"]
    modes = {gpu["uuid"]: gpu["compute_mode"] for gpu in gpus}
    found: State = {
        "programs": side.programs(),
        "offers": side.kubelet.offers(),
        "files": sorted(_files(side.mps_root)),
        "limits": _limits(side.mps_root),
        "modes": "by chance" if case.refuses else modes,
    }
    if case.refuses and found["programs"]["daemon"] in ("waits", ENDED):
        found["programs"]["daemon"] = "waits or has ended"
    text = json.dumps(found, sort_keys=True).replace(str(side.mps_root), "{mps}")
    for index, gpu in enumerate(gpus):
        text = text.replace(gpu["uuid"], f"GPU {index}")
        for number, parts in enumerate(mig_devices(gpu)):
            text = text.replace(mig_device_uuid(gpu, *parts), f"MIG {index}:{number}")
    # What is wrong in a text is said in the words of another parser.
    text = re.sub(r"(error parsing config file: unmarshal error).*?(?=\")", r"\1", text.replace('\\"', "'"))
    made: State = json.loads(text)
    return made


def _files(root: Path) -> Iterator[str]:
    for path in root.rglob("*"):
        if path.is_dir() or path.name in (".ready", ".started"):
            yield str(path.relative_to(root))


def _limits(root: Path) -> State:
    """Of each MPS daemon that runs."""
    return {
        str(file.parent.relative_to(root)): {name: daemon[name] for name in ("percentage", "limits")}
        for file in root.rglob(STATE_FILE)
        if (daemon := load(str(file.parent)))
    }


def lose(machine: Path) -> None:
    with Store(machine).writing() as found:
        uuid = found["gpus"][1]["uuid"]
        find(found, uuid)[0]["lost"] = True


def steps(side: Side, case: Case) -> Iterator[int]:
    """Does one after the other; yields its number when it is done."""
    current = PLAIN
    for number, text in enumerate(case.texts):
        if text.startswith(KUBELET):
            side.write(text.removeprefix(KUBELET))
            side.kubelet.restart()
            side.look()
            yield number
            continue
        if text == LOSE:
            lose(side.machine)
        elif text == QUIT:
            tell(side.mps_root / "nvidia.com/gpu/pipe", command="quit")
        else:
            current = text
        (side.sighup if number else side.start)(current)
        yield number
