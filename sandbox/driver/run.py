"""Runs a Python module, unchanged, on a simulated machine.

    python -m sandbox.driver.run STATE.json -m MODULE [ARGUMENT…]

The module sees the arguments after its name as `sys.argv[1:]`, and GPUs where this machine has none. In place of a
machine's state its readings (.jsonl, by `gpuplan-nodeagent probe`) are replayed. A signal to a process that only the
simulated machine's procfs has is left there as a file, by the signal's name.
"""

import os
import runpy
import signal
import sys
from pathlib import Path

from sandbox.driver.abi.replay import library_of
from sandbox.driver.install import install
from sandbox.driver.procfs import proc_of
from sandbox.driver.store import Store

USAGE = "usage: python -m sandbox.driver.run STATE.json -m MODULE [ARGUMENT...]"


def main(arguments: list[str]) -> None:
    if len(arguments) < 3 or arguments[1] != "-m":
        sys.exit(USAGE)
    store = Store(arguments[0])
    try:
        install(store, library_of(store))
    except (OSError, ValueError) as problem:
        sys.exit(f"cannot run on {arguments[0]}: {problem}")
    _simulate_kill(proc_of(store.path))
    sys.argv = arguments[2:]
    runpy.run_module(arguments[2], run_name="__main__", alter_sys=True)


def _simulate_kill(proc: Path) -> None:
    real = os.kill

    def kill(pid: int, number: int) -> None:
        entry = proc / str(pid)
        if entry.is_dir():
            (entry / signal.Signals(number).name).touch()
        else:
            real(pid, number)

    setattr(os, "kill", kill)  # noqa: B010 - a module's function


if __name__ == "__main__":
    main(sys.argv[1:])
