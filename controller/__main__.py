"""Runs `gpuplan-controller --config FILE`: reads the settings, builds the client, goes on until a signal stops it.

The only module of the controller that reads arguments and the environment. Exit codes: 0 after SIGTERM or SIGINT, 1
when the leader's Lease was lost or the scheduler's configuration has changed (the Deployment restarts it), 2 for
settings or a kubeconfig that cannot be used.
"""

import argparse
import logging
import socket
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from controller.config.settings import load_settings, read_settings
from controller.planning import plan
from controller.wiring import Controller
from kube import clients, logs
from kube.file_limit import raise_file_limit
from kube.settings import SettingsError
from kube.signals import call_when_ended
from partitioning import __version__

log = logging.getLogger("controller")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal arrives or the Lease is lost."""
    arguments = _arguments(argv)
    try:
        settings = load_settings(arguments.config) if arguments.config else read_settings({})
        api = clients.load(arguments.kubeconfig, arguments.context, user_agent=f"gpuplan-controller/{__version__}")
    except (SettingsError, clients.UnusableConfigError) as error:
        return _unusable(str(error))
    logs.log_to_stderr(settings.log_level, settings.log_format)
    raise_file_limit()
    try:
        controller = Controller(api, settings, planner=plan, identity=f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}")
    except SettingsError as error:
        return _unusable(str(error))
    except OSError as error:
        where = f"{settings.metrics_address}:{settings.metrics_port}"
        return _unusable(f"{where} cannot be listened on: {error}: change metricsAddress or metricsPort")
    call_when_ended(controller.stop)
    log.info("starting gpuplan-controller, API server %s", api.configuration.host)
    controller.run()
    log.info("stopping gpuplan-controller")
    return 1 if controller.lost else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpuplan-controller",
        description="Plans the partitions of a cluster's GPUs for the pods that wait for them.",
        epilog="examples:\n"
        "  gpuplan-controller --config /etc/gpuplan/config.yaml        # in a pod\n"
        "  gpuplan-controller --kubeconfig ~/.kube/config --context lab",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings (YAML); default: as documented in docs/settings.md"
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="how to reach the API server; not needed inside a pod")
    parser.add_argument("--context", metavar="NAME", help="the context of the kubeconfig to use")
    parser.add_argument("--version", action="version", version=f"gpuplan-controller {__version__}")
    return parser.parse_args(argv)


def _unusable(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
