"""Names the programs that have the driver's device files open: DCGM and exporters hold GPUs that no list shows.

Takes the node's processes and pods, returns pods and programs. For people only: what is not found here is not free.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nodeagent.cdi.device_numbers import read_device_numbers
from nodeagent.observed.kubelet import NoAnswer
from nodeagent.observed.pods import NodePod
from nodeagent.observed.processes import Processes

NAMED = 4
ALL_MINORS = range(256)
"""Of the GPUs and switches, and of the nodes for control, mode setting and unified memory."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DriverClient:
    """One program of one pod, or of none."""

    pod: str
    """Empty: a program of the node itself, or of a pod that has left the API."""
    program: str

    def __str__(self) -> str:
        return f"{self.program} ({f'pod {self.pod}' if self.pod else 'in no pod'})"


class DriverClients:
    """Needs the node's PID namespace, which the agent has."""

    def __init__(self, proc: Path) -> None:
        self._proc, self._processes = proc, Processes(proc)

    def of(self, gpu_minor: int | None, pods: Iterable[NodePod]) -> tuple[DriverClient, ...] | NoAnswer:
        """Of one GPU, or (None) of the whole driver."""
        numbers = read_device_numbers(self._proc)
        if (major := numbers.major("nvidia")) is None:
            return () if numbers.majors else NoAnswer(reason=numbers.problem)
        parts, minors = {major}, ALL_MINORS if gpu_minor is None else (gpu_minor,)
        if gpu_minor is None:
            # The fabric manager has no GPU open, and keeps the driver loaded all the same.
            parts = {number for name, number in numbers.majors.items() if name.startswith("nvidia")}
        holders = self._processes.holders({(part, minor) for part in parts for minor in minors}, everyone=True)
        if isinstance(holders, NoAnswer):
            return holders
        titles = {pod.uid: pod.title for pod in pods}
        found = {
            DriverClient(pod=next((titles[uid] for uid in each.pods if uid in titles), ""), program=each.program)
            for each in holders
        }
        return tuple(sorted(found))


def sentence(clients: Iterable[DriverClient]) -> str:
    """The first of them; empty for none."""
    found = [str(client) for client in clients]
    return ", ".join(found[:NAMED]) + (f" and {len(found) - NAMED} more" if len(found) > NAMED else "")
