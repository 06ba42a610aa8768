"""Runs `gpuplan sandbox up` and `gpuplan sandbox run`.

`up` keeps a cluster running until Ctrl-C; `run` ends by itself when every pod is bound, finished or explained.
Progress goes to stderr and only to a terminal; what `run` prints on stdout is for people (table) or programs
(json).
"""

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from cli.examples import add_command, add_files
from cli.manifests import Manifest
from sandbox.cli.manifests import load_located, refused
from sandbox.cli.tables import container_json, container_table, plan_table, pod_table
from sandbox.cluster import Cluster, ClusterSettings
from sandbox.control_plane import ControlPlaneFailed, Embedded
from sandbox.objects import RefusedManifestError
from sandbox.settle import Settlement, settlement

POLL_SECONDS = 0.2
Progress = Callable[[Settlement, bool], None]
"""Called after each poll, with whether it was the last one."""
AFTERWARDS_SECONDS = 20.0
"""Left of the time-out for what a pod that ends makes possible; one that ends later is not waited for."""
QUIET_POLLS = 3
"""How often in a row the run must look settled: an event may be on its way between two processes."""


def _common(parser: argparse.ArgumentParser) -> None:
    add_files(parser, "manifests")
    parser.add_argument(
        "--status-tick", type=float, default=ClusterSettings().status_tick_seconds, metavar="S",
        help="seconds between two status updates of a kubelet (a real one takes 10; default %(default)s)",
    )  # fmt: skip
    parser.set_defaults(control_plane=Embedded)


def add_up(kinds: Any) -> None:
    """Declare `sandbox up`."""
    parser = add_command(
        kinds,
        "up",
        "start a cluster and keep it running until Ctrl-C",
        examples=("gpuplan sandbox up -f examples/mig", "gpuplan sandbox up -f nodes.yaml -f pods.yaml"),
    )
    _common(parser)
    parser.set_defaults(run=up)


def add_run(kinds: Any) -> None:
    """Declare `sandbox run`."""
    parser = add_command(
        kinds,
        "run",
        "run until every pod is bound, finished or explained; exit 1 if that fails",
        examples=("gpuplan sandbox run -f examples/survivors", "gpuplan sandbox run -f examples/mps -o json"),
    )
    _common(parser)
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds (default %(default)s)")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.set_defaults(run=run)


def _warn(line: str) -> None:
    print(f"gpuplan: {line}", file=sys.stderr)


def _cluster(arguments: argparse.Namespace) -> Cluster:
    """A cluster that is not started, on the control plane that `arguments.control_plane` makes."""
    settings = ClusterSettings(status_tick_seconds=arguments.status_tick)
    return Cluster(settings, control_plane=arguments.control_plane(), report=_warn)


def _start(cluster: Cluster, manifests: Sequence[Manifest]) -> None:
    try:
        cluster.start([manifest.body for manifest in manifests])
    except RefusedManifestError as error:
        raise refused(manifests, error.body, str(error)) from error


def up(arguments: argparse.Namespace) -> int:
    """Start, say how to reach it, wait for the end."""
    manifests = load_located(arguments.filename)
    end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: end.set())
    cluster = _cluster(arguments)
    try:
        _start(cluster, manifests)
        print(f"export KUBECONFIG={cluster.kubeconfig}", flush=True)
        _warn(f"the cluster is up; logs are in {cluster.directory / 'logs'}; Ctrl-C ends it")
        _warn(f"to break a GPU of the first node: gpuplan sandbox break {cluster.directory / 'n0/gpus.json'} 0 lost")
        end.wait()
        _warn("the cluster ends, and its folder goes")
    except ControlPlaneFailed as failure:
        _warn(str(failure))
        return 1
    finally:
        cluster.stop()
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Start, wait until it settles, print what happened."""
    manifests = load_located(arguments.filename)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda signum, _: sys.exit(128 + signum))  # by way of `finally`
    began = time.monotonic()
    cluster = _cluster(arguments)
    try:
        _start(cluster, manifests)
        patience_until = time.time() + arguments.timeout - AFTERWARDS_SECONDS
        found = wait_settled(
            cluster, began + arguments.timeout, progress=progress_line(), patience_until=patience_until
        )
        seconds = round(time.monotonic() - began, 1)
        plans = cluster.plans()
        containers = cluster.containers()
        troubles = [] if found.settled else cluster.troubles()
    except ControlPlaneFailed as failure:
        _warn(str(failure))
        return 1
    finally:
        cluster.stop()
    if arguments.output == "json":
        result = {
            "seconds": seconds,
            "pods": [pod.as_json() for pod in found.pods],
            "plans": plans,
            "containers": [container_json(record) for record in containers],
        }
        print(json.dumps(result, indent=2))
    else:
        tables = (pod_table(found.pods), plan_table(plans), container_table(containers))
        print(*filter(None, tables), sep="\n\n")
    for line in found.waiting:
        _warn(f"not settled after {arguments.timeout:g} s: {line}")
    for line in troubles:
        _warn(line)
    return 0 if found.settled else 1


def wait_settled(cluster: Cluster, deadline: float, *, progress: Progress, patience_until: float = 0.0) -> Settlement:
    """Look until it stays settled for some polls, or until the deadline (monotonic seconds).

    Pods that end by themselves before `patience_until` (epoch seconds) are waited for while others lack room.
    """
    quiet = 0
    while True:
        # decisions first: what the API shows after it can only be newer
        decisions = cluster.decisions()
        found = settlement(
            cluster.pods(),
            cluster.plans(),
            decisions,
            without_agent=cluster.nodes_without_agent,
            patience_until=patience_until,
        )
        quiet = quiet + 1 if found.settled else 0
        over = quiet >= QUIET_POLLS or time.monotonic() > deadline
        progress(found, over)
        if over:
            return found
        time.sleep(POLL_SECONDS)


def progress_line() -> Progress:
    """Shows one changing line on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda _found, _over: None

    def show(found: Settlement, over: bool) -> None:
        running = sum(1 for pod in found.pods if pod.node)
        explained = sum(1 for pod in found.pods if not pod.node and pod.reason)
        rest = len(found.pods) - running - explained
        end = "\n" if over else ""
        print(f"\r\033[K{running} bound, {explained} explained, {rest} waiting", end=end, file=sys.stderr, flush=True)

    return show
