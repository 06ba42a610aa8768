"""Reads every witness of use but the driver, in the order that safety needs, and returns the usage of one moment.

First which ids the kubelet still has, then which were handed out, then which pods hold them: an id that is gone from
the kubelet's list cannot have got a holder that the later answers miss. So `read` must come after what the device
plugin has in force was read. A witness that cannot be read makes every id unknown. Changes nothing but its memory.
"""

from dataclasses import dataclass
from typing import Protocol

from nodeagent.handover.config import Allocation, PluginFiles, read_ledger, read_ledger_mark
from nodeagent.handover.files import Unreadable
from nodeagent.hardware.gpu_ids import KNOWN, GpuResources
from nodeagent.observed.ends import EndBook, Ends
from nodeagent.observed.holdings import Holdings
from nodeagent.observed.kubelet import Allocatable, CheckpointEntry, Listed, NoAnswer
from nodeagent.observed.pod_book import PodBook
from nodeagent.observed.pods import ObservedPods
from nodeagent.observed.usage import Usage, judge

HIDDEN_PROCESSES = (
    "the agent does not see the processes of other containers, so the driver lists none of them: run its pod with "
    "hostPID: true"
)


class KubeletReader(Protocol):
    """What a pass reads from the kubelet; see `kubelet.Kubelet`."""

    def listed(self) -> Listed | NoAnswer: ...

    def allocatable(self) -> Allocatable | NoAnswer: ...

    def checkpoint(self) -> tuple[CheckpointEntry, ...]: ...

    def rival_sockets(self) -> tuple[str, ...]: ...

    def seconds_since_start(self) -> float | None: ...

    def shares_processes(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessed:
    """What the witnesses showed at one moment."""

    allocatable: Allocatable | NoAnswer
    pods: ObservedPods
    usage: Usage
    rival_sockets: tuple[str, ...]
    believed_in_seconds: float | None
    """Until the List of a kubelet that has just started is believed."""
    handed_out: tuple[Allocation, ...] = ()
    """The device plugin's ledger of this boot, read before the other witnesses."""
    hidden_processes: str = ""
    """Why the driver's list of processes proves nothing: a sentence for people."""
    ends: Ends
    lost: str = ""
    """Why a pod that no record knows may hold any device."""


class Witnesses:
    """One per agent."""

    def __init__(
        self,
        kubelet: KubeletReader,
        holdings: Holdings,
        files: PluginFiles,
        ends: EndBook,
        *,
        kubelet_start_seconds: float,
        resources: GpuResources = KNOWN,
    ) -> None:
        self._kubelet, self._holdings, self._files, self._resources = kubelet, holdings, files, resources
        self._ends = ends
        self._kubelet_start_seconds = kubelet_start_seconds

    def read(self, book: PodBook) -> Witnessed:
        """Read them all; the pods last, after the kubelet's answers."""
        allocatable = self._kubelet.allocatable()
        allocations = read_ledger(self._files) or ()
        unusable = f"the device plugin's {allocations}" if isinstance(allocations, Unreadable) else ""
        handed_out = () if isinstance(allocations, Unreadable) else self._holdings.of_this_boot(allocations)
        seconds = self._kubelet.seconds_since_start()
        too_early = self._too_early(seconds) or unusable
        listed = self._kubelet.listed()
        listed = listed.only(self._resources) if isinstance(listed, Listed) else listed
        checkpoint = self._kubelet.checkpoint()
        sees_processes = self._kubelet.shares_processes()
        # After the ledger: one that was put aside before that was read shows now.
        lost_ledger, mark = self._files.lost_ledger, read_ledger_mark(self._files)
        pods = book.observed()
        ends = self._ends.judge(
            self._holdings.gone(pods, checkpoint, handed_out),
            pods,
            NoAnswer(reason=too_early) if too_early else listed,
            doubted=self._holdings.doubts(handed_out, lost_ledger, mark),
            seen=sees_processes,
            handed_out={entry.id: entry for entry in handed_out},
        )
        book.end(ends.ended)
        pods = book.observed()
        lost = "" if too_early else self._holdings.records.lost(lost_ledger, mark, ends)
        votes = self._holdings.votes(pods, listed, handed_out, checkpoint, ends, believed=not (too_early or lost))
        return Witnessed(
            allocatable=allocatable,
            pods=pods,
            usage=judge(pods, listed, votes, too_early=too_early or lost or self._holdings.problem),
            rival_sockets=self._kubelet.rival_sockets(),
            handed_out=handed_out,
            believed_in_seconds=self._kubelet_start_seconds - seconds if seconds is not None else None,
            hidden_processes="" if sees_processes else HIDDEN_PROCESSES,
            ends=ends,
            lost=lost,
        )

    def _too_early(self, seconds: float | None) -> str:
        if seconds is None:
            return "the kubelet does not serve pod-resources"
        if seconds < self._kubelet_start_seconds:
            # Not how long ago: a sentence that changes every second would be a status write every second.
            return (
                f"the kubelet started just now, and what it lists is believed after {self._kubelet_start_seconds:g} s"
            )
        return ""
