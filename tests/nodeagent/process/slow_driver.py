"""Runs a Python module on a simulated machine, one of whose C functions takes long.

    python -m tests.nodeagent.process.slow_driver STATE.json FUNCTION SECONDS -m MODULE [ARGUMENT…]

Each call of the function waits before it acts; the others answer at once.
"""

import runpy
import sys
import time

from sandbox.driver.abi.library import Library
from sandbox.driver.abi.registry import Export
from sandbox.driver.install import install
from sandbox.driver.status import Status
from sandbox.driver.store import Store


def main(state: str, slow: str, seconds: str, _: str, *module_and_arguments: str) -> None:
    class SlowLibrary(Library):
        def call(self, export: Export, arguments: tuple[int | None, ...]) -> Status:
            if export.function.__name__ == slow:
                time.sleep(float(seconds))
            return super().call(export, arguments)

    install(Store(state), SlowLibrary)
    sys.argv = list(module_and_arguments)
    runpy.run_module(module_and_arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
