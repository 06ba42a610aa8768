"""The supervisor of MPS control daemons: `gpuplan-nodeagent mps --state-dir D --mps-root M`.

Reads the command line and the environment, takes the lock that keeps a second supervisor away, and runs until SIGTERM
or SIGINT. Exits 0 then, 1 where another one holds the state directory.
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence

from kube.logs import log_to_stderr
from kube.signals import call_when_ended
from nodeagent.command_line import parser
from nodeagent.handover.config import PluginFiles
from nodeagent.handover.mps_state import hold_mps_lock
from nodeagent.mps.supervisor import MpsSupervisor

log = logging.getLogger("nodeagent.mps")
LOCK_TRIES, LOCK_PAUSE_SECONDS = 20, 0.1  # who asks whether a supervisor runs has the lock for a moment


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    example = "--state-dir /var/lib/gpuplan --mps-root /run/gpuplan/mps"
    found = parser("mps", "Runs the MPS control daemons of this node's GPUs with slices.", example)
    found.add_argument(
        "--one-user",
        action="store_true",
        help="an MPS server serves the pods of one user at a time, also where the driver has servers for all",
    )
    return found.parse_args(arguments)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    log_to_stderr(arguments.log_level, arguments.log_format)
    files = PluginFiles(arguments.state_dir)
    lock = hold_mps_lock(files)
    for _ in range(LOCK_TRIES):
        if lock is not None:
            break
        time.sleep(LOCK_PAUSE_SECONDS)
        lock = hold_mps_lock(files)
    if lock is None:
        log.error("another supervisor of MPS daemons runs on %s", arguments.state_dir)
        return 1
    with lock:
        supervisor = MpsSupervisor(
            state_dir=arguments.state_dir,
            mps_root=arguments.mps_root,
            environment=os.environ,
            many_users=not arguments.one_user,
        )
        call_when_ended(supervisor.stop)
        log.info("keeping MPS daemons below %s", arguments.mps_root)
        supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
