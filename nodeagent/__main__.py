"""`gpuplan-nodeagent`: the agent of one GPU node; `plugin` is its device plugin, `mps` runs its MPS daemons.

    gpuplan-nodeagent --node-name N --config FILE [--kubeconfig F]
    gpuplan-nodeagent plugin --state-dir D --kubelet-dir K --mps-root M
    gpuplan-nodeagent mps --state-dir D --mps-root M
    gpuplan-nodeagent probe

Reads the command line, builds the clients, and runs until SIGTERM or SIGINT; `probe` prints what the driver answers.
Exits 0 then; 1 where another agent holds the node or the port is taken; 2 where command line, settings or kubeconfig
are wrong; 3 where it must be started again because the NVIDIA driver was replaced or is gone.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kube import clients, logs, settings
from kube.file_limit import raise_file_limit
from kube.settings import SettingsError
from kube.signals import call_when_ended
from nodeagent.device_plugin.__main__ import main as plugin_main
from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.hardware.probe import probe
from nodeagent.mps.__main__ import main as mps_main
from nodeagent.process import AgentProcess
from nodeagent.settings import Settings
from nodeagent.statedir import AnotherAgentError
from partitioning import __version__

log = logging.getLogger("nodeagent")


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpuplan-nodeagent",
        description="Partitions the GPUs of one node by its GPUPartitionPlan.",
        epilog="`gpuplan-nodeagent plugin` runs the device plugin instead, `gpuplan-nodeagent mps` the supervisor of "
        "MPS control daemons: each has its own --help. `gpuplan-nodeagent probe` prints what the driver answers.\n\n"
        "examples:\n"
        "  gpuplan-nodeagent --node-name gpu-node-1 --config /etc/gpuplan/config.yaml\n"
        "  gpuplan-nodeagent plugin --state-dir /var/lib/gpuplan\n"
        "  gpuplan-nodeagent mps --state-dir /var/lib/gpuplan",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--node-name", required=True, help="name of this Node; in a pod spec.nodeName gives it")
    parser.add_argument("--config", type=Path, help="settings (YAML); default: as documented in docs/settings.md")
    parser.add_argument("--kubeconfig", help="default: the pod's service account, else KUBECONFIG or ~/.kube/config")
    parser.add_argument("--version", action="version", version=f"gpuplan-nodeagent {__version__}")
    return parser.parse_args(arguments)


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["plugin"]:
        return plugin_main(words[1:])
    if words[:1] == ["mps"]:
        return mps_main(words[1:])
    if words == ["probe"]:
        return _probe()
    arguments = parse_arguments(words)
    try:
        chosen = settings.load(Settings, arguments.config) if arguments.config else Settings()
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    logs.log_to_stderr(chosen.log_level, chosen.log_format, node=arguments.node_name)
    raise_file_limit()
    try:
        api = clients.load(arguments.kubeconfig, user_agent=f"gpuplan-nodeagent/{__version__}")
    except clients.UnusableConfigError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        process = AgentProcess(arguments.node_name, chosen, api, NvmlDriver())
    except (AnotherAgentError, OSError) as error:
        log.error("%s", error)
        return 1
    call_when_ended(process.stop)
    process.start()
    try:
        ended_by = process.run()
    finally:
        process.close()
    return 3 if ended_by else 0


def _probe() -> int:
    problem = probe(partial(print, flush=True))
    if problem:
        print(problem, file=sys.stderr)
    return 3 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
