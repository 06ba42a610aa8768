"""`python -m sandbox.child MODULE args…`: run a module as a process that never outlives the sandbox.

Standard input is a pipe that only the parent holds open: when it ends, however the parent died, this process ends
too. The module itself runs unmodified.
"""

import os
import runpy
import sys
import threading


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(143)


def main() -> None:
    """Run the module named by the first argument."""
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
