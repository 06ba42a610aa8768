"""`python -m sandbox.controlplane {build,up} [--version V]`: fetch the programs, or run them until Ctrl-C.

`build` prints the folders of the programs; `up` prints the KUBECONFIG line of the administrator. Reads the environment
(KUBEBUILDER_ASSETS, XDG_CACHE_HOME) once. Exit code 69 (as in sysexits.h: unavailable) where something is missing, with
what would help; 1 where nothing is missing and it fails all the same.
"""

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from sandbox.controlplane.binaries import Places, obtain, pinned
from sandbox.controlplane.gobuild import Missing
from sandbox.controlplane.part import ControlPlaneFailed
from sandbox.controlplane.plane import RealControlPlane


def main() -> int:
    """Parse the command line and do it."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.controlplane", description=__doc__)
    parser.add_argument("do", choices=("build", "up"))
    parser.add_argument("--version", help=f"Kubernetes version; pinned are {', '.join(pinned())}")
    arguments = parser.parse_args()
    programs = obtain(arguments.version, Places.of(os.environ, Path.home()), report=_say)
    if isinstance(programs, Missing):
        _say(programs.message)
        return 1 if programs.broken else os.EX_UNAVAILABLE
    if arguments.do == "build":
        for name, path in programs.programs.items():
            print(f"{name} {path}")
        return 0
    plane = RealControlPlane(programs)
    try:
        plane.start()
        config = plane.directory / "kubeconfig"
        config.touch(mode=0o600)
        config.write_text(plane.kubeconfig())
        print(f"export KUBECONFIG={config}", flush=True)
        _wait_for_signal()
    except ControlPlaneFailed as failure:
        _say(str(failure))
        return 1
    finally:
        plane.stop()
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _wait_for_signal() -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()


if __name__ == "__main__":
    sys.exit(main())
