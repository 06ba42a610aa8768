"""Runs a command that finds a simulated machine where it loads the NVIDIA driver's library.

    python -m sandbox.driver.library STATE.json COMMAND [ARGUMENT…]

Ends as the command does. Symbols that it called and that are not simulated are named on standard error.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sandbox.driver.abi.replay import library_of
from sandbox.driver.library.build import build
from sandbox.driver.library.serve import Server, environment
from sandbox.driver.store import Store


def main(machine: Path, command: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if build(folder) is None:
            print("gpuplan: no C compiler (cc) on PATH; it makes the driver's library", file=sys.stderr)
            return os.EX_UNAVAILABLE
        store = Store(machine)
        server = Server(store, folder, library_of(store))
        server.start()
        try:
            return subprocess.run(command, env=environment(os.environ, folder), check=False).returncode
        except OSError as error:
            print(f"gpuplan: {command[0]}: {error.strerror}", file=sys.stderr)
            return os.EX_USAGE
        finally:
            server.stop()
            for symbol in sorted(server.not_simulated):
                print(f"gpuplan: not simulated: {symbol}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
