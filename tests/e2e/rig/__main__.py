"""Runs the commands of `gpuplan sandbox` on a real control plane, and builds its programs: `python -m tests.e2e.rig`.

`build` prints where the programs are, `helm` where that one is, `servers` runs them until Ctrl-C and prints the
administrator's KUBECONFIG line, `up`, `run` and `demo` are those of `gpuplan sandbox`. Reads the environment
(KUBEBUILDER_ASSETS, XDG_CACHE_HOME) once. Exits with 69 (as in sysexits.h: unavailable) and a remedy where something is
missing.
"""

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from cli.__main__ import perform
from sandbox.cli import declare
from sandbox.control_plane import ControlPlaneFailed
from tests.e2e.rig.controlplane import Binaries, Missing, Places, RealControlPlane, obtain
from tests.e2e.rig.controlplane.binaries import helm, pinned
from tests.e2e.rig.controlplane.tenants import RealServers


def main() -> int:
    """Run one command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.rig", description=__doc__)
    parser.add_argument("--kubernetes", metavar="VERSION", help=f"one of {', '.join(pinned())}")
    commands = declare(parser)
    for name, help_text in (
        ("build", "build the programs"),
        ("helm", "build helm"),
        ("servers", "run the servers until Ctrl-C"),
    ):
        commands.add_parser(name, help=help_text)
    arguments = parser.parse_args()
    if arguments.sandbox_command == "helm":
        return _helm()
    programs = obtain(arguments.kubernetes, Places.of(os.environ, Path.home()), report=_report)
    if isinstance(programs, Missing):
        _report(programs.message)
        return 1 if programs.broken else os.EX_UNAVAILABLE
    match arguments.sandbox_command:
        case "build":
            for name, path in programs.programs.items():
                print(f"{name} {path}")
            return _helm()
        case "servers":
            return _serve(programs)
    arguments.control_plane = lambda: RealServers(RealControlPlane(programs))
    return perform(arguments)


def _helm() -> int:
    found = helm(Places.of(os.environ, Path.home()), report=_report)
    if isinstance(found, Missing):
        _report(found.message)
        return 1 if found.broken else os.EX_UNAVAILABLE
    print(found)
    return 0


def _serve(programs: Binaries) -> int:
    plane = RealControlPlane(programs)
    try:
        plane.start()
        config = plane.directory / "kubeconfig"
        config.touch(mode=0o600)
        config.write_text(plane.kubeconfig())
        print(f"export KUBECONFIG={config}", flush=True)
        _wait_for_signal()
    except ControlPlaneFailed as failure:
        _report(str(failure))
        return 1
    finally:
        plane.stop()
    return 0


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _wait_for_signal() -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()


if __name__ == "__main__":
    sys.exit(main())
