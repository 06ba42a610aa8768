"""`python -m benchmarks.scale --nodes N --pods P`: how long pods wait on a real control plane, and what it costs.

Reads the environment once (K8S, KUBEBUILDER_ASSETS, XDG_CACHE_HOME), builds the servers where they are not cached, and
prints a table, or JSON. Exit codes: 0 when every pod was bound, 1 when some were not, 2 when there was no run.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks.scale.figures import table
from benchmarks.scale.run import run
from benchmarks.scale.stage import Sizes, StageError
from sandbox.control_plane import ControlPlaneFailed
from tests.e2e.rig.controlplane import Missing, Places, obtain


def main() -> int:
    """Run once."""
    args = _arguments()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(2))  # by way of what stops the servers
    programs = obtain(os.environ.get("K8S") or None, Places.of(os.environ, Path.home()), report=_report)
    if isinstance(programs, Missing):
        _report(programs.message)
        return 2
    named = {"batchWindowTimeoutSeconds": args.batch_timeout, "batchWindowIdleSeconds": args.batch_idle}
    agents = {"heartbeatSeconds": args.heartbeat, "writeAllocatable": False if args.status_tick else None}
    sizes = Sizes(
        nodes=args.nodes,
        pods=args.pods,
        gpus=args.gpus,
        per_second=args.rate,
        seed=args.seed,
        agent_processes=args.agent_processes or max(1, -(-args.nodes // 500)),
        settings={name: value for name, value in named.items() if value is not None},
        agent_settings={name: value for name, value in agents.items() if value is not None},
    )
    directory = args.keep or Path(tempfile.mkdtemp(prefix="gpuplan-scale-"))
    try:
        found = run(programs, sizes, directory, limit_seconds=args.limit_seconds, report=_report)
    except (StageError, ControlPlaneFailed) as error:
        _report(f"{error} (logs in {directory})")
        return 2
    if args.keep is None:
        shutil.rmtree(directory)
    print(json.dumps(found, indent=1) if args.json else table(found))
    return 0 if found["counts"]["pods bound"] == args.pods else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--gpus", type=int, default=4, help="of each node")
    parser.add_argument("--rate", type=float, default=25.0, help="pods a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agent-processes", type=int, default=0, help="one for each 500 nodes by default")
    parser.add_argument("--batch-timeout", type=float, help="the controller's; that of deploy/ by default")
    parser.add_argument("--batch-idle", type=float, help="the controller's; that of deploy/ by default")
    parser.add_argument("--heartbeat", type=float, help="the agents' heartbeatSeconds; 10 by default")
    parser.add_argument("--status-tick", action="store_true", help="agents do not write the Node's amounts")
    parser.add_argument("--limit-seconds", type=float, default=720.0, help="of the whole run")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where logs go and stay")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
