"""The device plugin process: `python -m nodeagent.device_plugin --state-dir D --kubelet-dir K --mps-root M`.

Reads the command line and the environment, takes the lock that keeps a second plugin away, and runs the service until
SIGTERM or SIGINT. Exits 0 then, 1 where another plugin holds the state directory.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from kube.logs import log_to_stderr
from kube.signals import call_when_ended
from nodeagent.command_line import parser
from nodeagent.device_plugin.liveness import Liveness
from nodeagent.device_plugin.service import PluginService
from nodeagent.handover.cdi import DEFAULT_DIRECTORY
from nodeagent.handover.config import PluginFiles
from nodeagent.handover.files import boot_id, hold_lock

log = logging.getLogger("nodeagent.device_plugin")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    found = parser(
        "plugin",
        "Advertises this node's GPU partitions to the kubelet.",
        "--state-dir /var/lib/gpuplan --kubelet-dir /var/lib/kubelet",
    )
    found.add_argument("--kubelet-dir", type=Path, default=Path("/var/lib/kubelet"), help="the kubelet's root")
    found.add_argument(
        "--cdi-dir",
        type=Path,
        default=DEFAULT_DIRECTORY,
        help="where the agent writes its CDI specification; the last of cdiSpecDirs in its settings",
    )
    found.add_argument(
        "--writable-mps-pipes",
        action="store_true",
        help="where devices are not given by CDI: mount the pipe directories of MPS daemons writable into containers",
    )
    found.add_argument("--liveness-port", type=int, default=0, help="of /healthz on 127.0.0.1; 0 (default): none")
    return found.parse_args(arguments)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    log_to_stderr(arguments.log_level, arguments.log_format)
    lock = hold_lock(PluginFiles(arguments.state_dir).directory / "plugin.lock")
    if lock is None:
        # Two plugins for one resource end each other's streams.
        log.error("another device plugin runs on %s", arguments.state_dir)
        return 1
    with lock:
        service = PluginService(
            state_dir=arguments.state_dir,
            kubelet_dir=arguments.kubelet_dir,
            mps_root=arguments.mps_root,
            boot_id=boot_id(),
            cdi_dir=arguments.cdi_dir,
            read_only_pipes=not arguments.writable_mps_pipes,
        )
        call_when_ended(service.stop)
        if arguments.liveness_port:
            Liveness(service.sockets).start(arguments.liveness_port)
        service.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
