"""Writes what NVIDIA's device plugin and MPS control daemon answer in each case: `python -m tests.e2e.nvidia.record`.

For a new version of theirs: pin it, run this, and read the difference of the record before it is kept.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import grpc

from sandbox.driver.library.build import build
from sandbox.driver.machine import create
from tests.builders.models import MODELS
from tests.e2e.rig.controlplane import Missing, Places
from tests.e2e.rig.nvidia.host import Host
from tests.e2e.rig.nvidia.plugin import RealPrograms
from tests.e2e.rig.nvidia.programs import DEVICE_PLUGIN, find
from tests.sandbox.nvidia_plugin.offers import kubelet
from tests.sandbox.nvidia_plugin.plugin_cases import CASES, RECORDED, Case, State, state, steps

REST_SECONDS = 1.0
"""A state that has not changed for so long is one."""


def main(names: list[str]) -> int:
    programs = find(DEVICE_PLUGIN, Places.of(os.environ, Path.home()), report=print)
    if isinstance(programs, Missing):
        print(programs.message, file=sys.stderr)
        return os.EX_UNAVAILABLE
    with tempfile.TemporaryDirectory() as name:
        library = build(Path(name))
        assert library is not None
        return _record(programs, library, names)


def _record(programs: Path, library: Path, names: list[str]) -> int:
    before = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    found = {}
    for case in CASES:
        again = not names or case.name in names or case.name not in before
        found[case.name] = recorded(programs, library, case) if again else before[case.name]
        print(case.name, [said["programs"] for said in found[case.name]], flush=True)
        RECORDED.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def recorded(programs: Path, library: Path, case: Case) -> list[State]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gpus = [(MODELS[key], options) for key, options in case.gpus]
        host = Host(folder / "h", create(folder / "machine.json", gpus, "test"), library)
        host.start()
        with kubelet(host.folder / "kubelet") as at:
            side = RealPrograms(programs, host, at)
            try:
                return [_at_rest(side, case) for _ in steps(side, case)]
            finally:
                side.stop()
                host.stop()


def _at_rest(side: RealPrograms, case: Case) -> State:
    seen, since = None, time.monotonic()
    while time.monotonic() < since + REST_SECONDS or seen is None:
        try:
            now = state(side, case)
        except grpc.RpcError:
            now = None
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.2)
    return seen


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
