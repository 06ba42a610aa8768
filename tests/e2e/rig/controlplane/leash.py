"""`python leash.py PROGRAM args…`: become PROGRAM, and end it when the parent is gone.

Standard input is a pipe that only the parent holds open. A small process of ours reads it: when it ends, however the
parent died, the program gets SIGTERM and then SIGKILL. The program keeps this process id, so that the process that
started it can stop, freeze or kill it directly.
"""

import os
import select
import signal
import sys
import time

LOOK_SECONDS = 1.0
GRACE_SECONDS = 8.0


def _alive(program: int) -> bool:
    """The watcher is the program's child: another parent means that the program ended."""
    return os.getppid() == program


def _watch(program: int) -> None:
    os.setsid()  # Ctrl-C is for the parent
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):  # a reader of the program's output waits for its end, not for ours
        os.dup2(nowhere, output)
    while _alive(program):
        readable, _, _ = select.select([0], [], [], LOOK_SECONDS)
        if readable and not os.read(0, 4096):
            break
    deadline = time.monotonic() + GRACE_SECONDS
    if _alive(program):
        os.kill(program, signal.SIGTERM)
    while _alive(program) and time.monotonic() < deadline:
        time.sleep(0.05)
    if _alive(program):
        os.kill(program, signal.SIGKILL)


def main() -> None:
    """Fork the watcher, then run the program in this process."""
    program = os.getpid()
    os.setsid()  # the sandbox stops its parts in order; the terminal's Ctrl-C would stop all at once
    if os.fork() == 0:
        try:
            _watch(program)
        finally:
            os._exit(0)
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
