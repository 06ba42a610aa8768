"""What the controller holds in memory: `python -m benchmarks.memory --nodes N --gpus G --pods P [--json]`.

The controller as it ships lists and watches a cluster of JSON objects that a small server in another process makes up.
Prints its resident memory (MiB): before anything is listed, once all is listed, once a watch has sent every pod
again, and after a planning pass over all of it; and the peak of each stretch. Linux only.
"""

import argparse
import json
import multiprocessing
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.memory.objects import Sizes
from benchmarks.memory.server import serve
from controller.config.settings import read_settings
from controller.gc_pause import collector_paused
from controller.planning import plan
from controller.wiring import Controller
from kube import clients

PATIENCE_SECONDS = 1800.0
SETTLING_SECONDS = 2.0
_STATUS = Path("/proc/self/status")
_SETTINGS = {"metricsPort": 0, "agentSilentSeconds": 86_000, "taintRemovalSeconds": 86_000}
"""Making up the objects takes longer than real agents may be silent."""


def resident_mib() -> int:
    """Of this process, now."""
    return _status_mib("VmRSS")


def peak_mib() -> int:
    """Of this process, since the last `forget_peak`."""
    return _status_mib("VmHWM")


def forget_peak() -> None:
    """Let the kernel count the peak from now on."""
    Path("/proc/self/clear_refs").write_text("5")


def _status_mib(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) // 1024


def measure(sizes: Sizes) -> dict[str, object]:
    found: dict[str, object] = {"nodes": sizes.nodes, "pods": sizes.pods, "pending": sizes.pending}
    with _cluster(sizes) as (url, again), _controller(url) as controller:
        found["start_mib"] = resident_mib()
        _wait(lambda: len(controller.state.cluster.nodes()) == sizes.nodes and _heard(controller, "", sizes))
        _note(found, "listed")
        again.set()
        _wait(lambda: _heard(controller, "again", sizes))
        _note(found, "watched")
        snapshot = controller.state.cluster.snapshot()
        with collector_paused():  # as the controller's loop does
            result = plan(snapshot)
        found["placed"] = len(result.placed)
        _note(found, "planned")
    found["peak_mib"] = max(int(str(found[f"{stretch}_peak_mib"])) for stretch in ("listed", "watched", "planned"))
    return found


def _note(found: dict[str, object], stretch: str) -> None:
    time.sleep(SETTLING_SECONDS)
    found[f"{stretch}_peak_mib"], found[f"{stretch}_mib"] = peak_mib(), resident_mib()
    forget_peak()


def _heard(controller: Controller, seen: str, sizes: Sizes) -> bool:
    """Every plan and pod is there, in this state."""
    unreadable = controller.state.cluster.unreadable()
    if unreadable:
        raise ValueError(f"the controller cannot read {next(iter(unreadable.items()))}")
    bound = controller.state.cluster.snapshot().pods if sizes.pods > sizes.pending else ()
    pending = controller.state.cluster.pending()
    plans = controller.state.cluster.plan_views()
    alive = len(plans) == sizes.nodes and all(view.agent_alive for view in plans.values())
    there = [*pending, *bound]
    return alive and len(there) == sizes.pods and all(dict(pod.labels).get("seen", "") == seen for pod in there)


def _wait(done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not done():
        if time.monotonic() > until:
            raise TimeoutError("the controller has not listed the whole cluster")
        time.sleep(1.0)


@contextmanager
def _cluster(sizes: Sizes) -> Iterator[tuple[str, Event]]:
    """A server in a process of its own: its URL, and a call that makes it send all pods again."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    again = context.Event()
    process = context.Process(target=serve, args=(there, again, sizes), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}", again
    finally:
        process.kill()
        process.join()


@contextmanager
def _controller(url: str) -> Iterator[Controller]:
    """One that runs, but never leads."""
    controller = Controller(clients.for_url(url), read_settings(_SETTINGS), planner=plan, identity="benchmark")
    thread = threading.Thread(target=controller.run, daemon=True)
    thread.start()
    try:
        yield controller
    finally:
        controller.stop()
        thread.join(10.0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--pods", type=int, default=50_000, help="of all nodes together, those that wait included")
    parser.add_argument("--pending", type=int, default=10_000, help="how many of them wait for partitions")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if min(args.nodes, args.gpus) < 1 or not 0 <= args.pending <= args.pods:
        parser.error("at least one node with one GPU, and no more pods that wait than pods, are needed")
    found = measure(Sizes(nodes=args.nodes, gpus=args.gpus, pods=args.pods, pending=args.pending))
    print(json.dumps(found) if args.json else "\n".join(f"{name:>16}  {value}" for name, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
