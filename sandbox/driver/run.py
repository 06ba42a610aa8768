"""Runs a Python module, unchanged, on a simulated machine.

    python -m sandbox.driver.run STATE.json -m MODULE [ARGUMENT…]

The module sees the arguments after its name as `sys.argv[1:]`, and GPUs where this machine has none.
"""

import runpy
import sys

from sandbox.driver.install import install
from sandbox.driver.store import Store

USAGE = "usage: python -m sandbox.driver.run STATE.json -m MODULE [ARGUMENT...]"


def main(arguments: list[str]) -> None:
    if len(arguments) < 3 or arguments[1] != "-m":
        sys.exit(USAGE)
    store = Store(arguments[0])
    try:
        install(store)
    except (OSError, ValueError) as problem:
        sys.exit(f"cannot run on {arguments[0]}: {problem}")
    sys.argv = arguments[2:]
    runpy.run_module(arguments[2], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
