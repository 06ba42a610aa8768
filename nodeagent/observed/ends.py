"""Decides when a pod that is gone has ended: when no process of it is left, or, where that cannot be seen, by time.

Takes the pods that the API no longer shows, returns the UIDs of those that have ended, and what is left of the others.
A pod that is gone by a fresh read of the API and by the kubelet's list, and without a process in its cgroups for half a
minute, has ended, unless another process of the node has its device open, or may have. Of one that has finished by the
API that suffices at once. Each pass looks at the processes twice. Those that are missing prove nothing of a pod that
has not started, of one whose runtime class may run it elsewhere, or where the kubelet's own processes or those of
living pods are not seen. Reads processes and the API only while a pod is gone or a record is doubted.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol, TypeAlias

from nodeagent.durations import Durations
from nodeagent.handover.config import Allocation
from nodeagent.observed.fresh import FreshPods
from nodeagent.observed.kubelet import Listed, NoAnswer
from nodeagent.observed.pods import DEFAULT_GRACE_SECONDS, NodePod, ObservedPods
from nodeagent.observed.processes import DeviceNumber, Process, ProcessTable

EMPTY_SECONDS = 30.0
"""Between two containers of a pod, and between its sandbox and the first one, its cgroups are empty for less."""

SANDBOX_SECONDS = 10.0
"""Within it the kubelet ends the sandbox of a pod whose containers have ended."""


class ProcessReader(Protocol):
    """See `processes.Processes`."""

    def scan(self) -> ProcessTable | NoAnswer: ...

    def holders(self, numbers: Collection[DeviceNumber]) -> tuple[Process, ...] | NoAnswer:
        """Those of no pod and no service: what these run is not this pod's."""


Numbers: TypeAlias = Callable[[Collection[str]], Mapping[str, frozenset[DeviceNumber] | None]]
"""Of the device files behind each of these ids; None where they are not known."""
Opener: TypeAlias = Callable[[Collection[str], str], str]
"""The process of no pod that has one of these ids open, or why that is not known, for people; empty for none. With when
their pod began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What is remembered of a pod that the API no longer shows, or shows as finished."""

    pod: NodePod
    ids: frozenset[str] = frozenset()
    lacks: bool = False
    """It may have other devices than these."""
    finished: bool = False
    """By the API, whose phase other clients can write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The answers of one pass."""

    ended: frozenset[str] = frozenset()
    """UIDs."""
    left: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By UID: the process that is left of the pod, for people."""
    began: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By UID of these, where any is in the pod's cgroup: seconds since boot when the first one began."""
    strangers: str | None = "the node's processes were not read"
    """A process of a pod that nothing knows, or a pod of which not all devices are known, or why none is ruled out;
    None where time has to do."""
    stray: bool = False
    """There is one."""
    pending: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By id of a pod that is gone and has not ended: what is left of which pod, for people, or nothing."""
    waiting: tuple[Gone, ...] = ()
    """Those pods."""
    new: frozenset[str] = frozenset()
    """Ids that only pods have which live, and which the watch has not brought yet."""
    unread: bool = False
    """The processes were not read: what was left of a pod may be there still."""
    opened: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By id that a pod may have had which no record names: the process of no pod that has it open, or may have."""
    running: frozenset[str] = frozenset()
    """UIDs of pods of which there is a process, if only of the sandbox, or may be one."""
    stale: frozenset[str] | None = None
    """UIDs of pods that the watch has, and the API server has no more; None: it was not asked."""


@dataclass(kw_only=True)
class EndBook:
    """One per agent. It remembers since when something has been so, and of which pods a process was seen."""

    processes: ProcessReader
    fresh: FreshPods
    numbers: Numbers
    clock: Callable[[], float]
    slack_seconds: float

    def __post_init__(self) -> None:
        self._durations = Durations(self.clock)
        self._started, self._absent = set[str](), set[str]()

    def judge(
        self,
        gone: Iterable[Gone],
        pods: ObservedPods,
        listed: Listed | NoAnswer,
        *,
        doubted: bool,
        asked: bool,
        unseen: Collection[str],
        seen: bool,
        handed_out: Mapping[str, Allocation],
    ) -> Ends:
        """`doubted`: strangers matter, also with the ids in `unseen`. `asked`: so does a watch that is late.
        `seen`: the agent sees the kubelet. `handed_out`: by device id."""
        found = {each.pod.uid: each for each in gone}
        ends, unread = Ends(unread=not pods.synced), ""
        if pods.synced and (found or doubted):
            table = self._twice() if seen else ProcessTable()
            if not seen:
                over = self._over(found.values(), pods, listed, complete=False)
                ends = Ends(ended=over, strangers=None, running=frozenset(pod.uid for pod in pods.pods))
            elif isinstance(table, NoAnswer):
                ends, unread = Ends(strangers=table.reason, unread=True), f"{table.reason}, and it is not known what"
            else:
                # The earlier pod may have come and gone while no one looked: no record names it.
                ids = sorted(unseen) if doubted else ()
                by_pod = table.pods()
                absent = (i for uid, each in found.items() if uid not in by_pod for i in each.ids)
                opener = self._look({*ids, *absent}, handed_out)
                ends = self._witnessed(found, pods, listed, table, opener, asked=asked)
                began = {uid: min(process.up_seconds for process in by_pod[uid]) for uid in ends.left if uid in by_pod}
                ends = replace(ends, began=began, opened={i: what for i in ids if (what := opener([i], ""))})
        self._durations.end_pass()
        waiting = tuple(each for uid, each in found.items() if uid not in ends.ended)
        pending = {i: "" for each in waiting for i in each.ids}
        pending |= {i: f"{what} is left of a pod that no record names" for i, what in ends.opened.items()}
        named = ((each, what) for each in waiting if (what := ends.left.get(each.pod.uid, unread)))
        pending |= {i: f"{what} is left of pod {each.pod.title}" for each, what in named for i in each.ids}
        return replace(ends, pending=pending, waiting=waiting)

    def _witnessed(
        self,
        found: Mapping[str, Gone],
        pods: ObservedPods,
        listed: Listed | NoAnswer,
        table: ProcessTable,
        opener: Opener,
        *,
        asked: bool,
    ) -> Ends:
        by_pod, here, complete = table.pods(), {pod.uid for pod in pods.pods}, _complete(table, pods)
        self._started = {uid for uid in found if uid in by_pod or uid in self._started}
        left = {uid: by_pod[uid][0].named for uid in found if uid in by_pod}
        absent = sorted(found.keys() - left.keys())
        left |= {uid: what for uid in absent if (what := opener(found[uid].ids, found[uid].pod.began))}
        # Programs that come and go, as nvidia-smi in a loop, keep a device only while they have it open.
        over = self._over((found[uid] for uid in absent), pods, listed, complete=complete) - left.keys()
        # The sandbox of a finished pod ends a moment later.
        soon = {u for u in found if self._durations.seconds("finished", u) < SANDBOX_SECONDS and found[u].finished}
        left = {uid: title for uid, title in left.items() if uid not in soon}
        theirs = {pod.uid for pod in pods.pods if not pod.ended or not pod.resources} | found.keys()
        strange = [process for process in table.processes if process.pods and not process.pods & theirs]
        # What the checkpoint alone has may be a new pod, and the watch is late.
        new = {uid for uid in left.keys() - self._absent if not found[uid].pod.name}
        # Nor is it known of such a pod which devices it has.
        lacking = (f"{what} is left of pod {found[u].pod.title}" for u, what in sorted(left.items()) if found[u].lacks)
        named = next(lacking, None)
        asked = bool(strange or new or over - here or (asked and named is None))
        fresh = self.fresh() if asked else ()
        if isinstance(fresh, NoAnswer):
            return Ends(ended=frozenset(over & here), left=left, strangers=named or fresh.reason, stray=bool(named))
        living = new & {pod.uid for pod in fresh if pod.name and not (pod.ended or pod.ending)}
        self._absent = (self._absent | new - living) & found.keys()
        left = {uid: title for uid, title in left.items() if uid not in living}
        # Of one that the kubelet does not list either it is not known which devices it has.
        known = {pod.uid for pod in fresh if isinstance(listed, NoAnswer) or pod.key in listed.pods}
        strangers = (process for process in strange if not process.pods & known - pods.ended)
        named = named or next((f"{each.named} is left of pod UID {min(each.pods)}" for each in strangers), None)
        # One that the API still shows is late in the watch, or finished.
        there = frozenset(pod.uid for pod in fresh)
        ended = over - (there - here)
        shared = {i for uid, each in found.items() if uid not in living for i in each.ids}
        new_ids = frozenset(i for uid in living for i in found[uid].ids if i not in shared)
        # Nor was one that is late looked at for devices that no record names.
        late = next((f"{each.named} is of a pod that the watch has not brought yet" for each in strange), None)
        stale = frozenset(p.uid for p in pods.pods if not p.ended) - there if asked else None
        titles = sorted(p.title for p in pods.pods if p.uid in (stale or ()))
        gone = (f"pod {title} is gone, and the watch has not brought that yet" for title in titles)
        late = late or next(gone, None)
        why = named or late or (listed.reason if isinstance(listed, NoAnswer) else "" if complete else None)
        run = frozenset(p.uid for p in pods.pods if p.started or p.outside or not (complete and by_pod)).union(by_pod)
        return Ends(ended=ended, left=left, strangers=why, stray=bool(named), new=new_ids, running=run, stale=stale)

    def _twice(self) -> ProcessTable | NoAnswer:
        """Two looks, for one alone misses a process that another one, which ends, starts meanwhile."""
        first, second = self.processes.scan(), self.processes.scan()
        if isinstance(first, NoAnswer) or isinstance(second, NoAnswer):
            return first if isinstance(first, NoAnswer) else second
        found = {each.pid: each for each in (*first.processes, *second.processes)}
        return ProcessTable(processes=tuple(each for _, each in sorted(found.items())))

    def _over(
        self, absent: Iterable[Gone], pods: ObservedPods, listed: Listed | NoAnswer, *, complete: bool
    ) -> frozenset[str]:
        """Those of which nothing was found for long enough; the kubelet lists a finished pod for some time."""
        over = [
            each for each in absent if self._durations.seconds("gone", each.pod.uid) >= self._patience(each, complete)
        ]
        return frozenset(each.pod.uid for each in over if each.finished or not _lists(listed, each.pod, pods))

    def _patience(self, gone: Gone, complete: bool) -> float:
        """Its process may be about to come, if none was there yet."""
        if gone.finished:
            return 0.0
        if gone.pod.outside or not complete:
            return gone.pod.grace_seconds + self.slack_seconds
        started = gone.pod.started or gone.pod.uid in self._started
        return EMPTY_SECONDS if started else DEFAULT_GRACE_SECONDS + self.slack_seconds

    def _look(self, device_ids: Collection[str], handed_out: Mapping[str, Allocation]) -> Opener:
        """One look at the open files, which are many, serves every device."""
        numbers = self.numbers(sorted(device_ids)) if device_ids else {}
        asked = frozenset[DeviceNumber]().union(*(each or () for each in numbers.values()))
        holders = self.processes.holders(asked) if asked else ()

        def opener(ids: Collection[str], began: str) -> str:
            theirs = frozenset[DeviceNumber]().union(*(numbers[i] or () for i in ids))
            if any(numbers[i] is None for i in ids):
                return "the numbers of device files are not known, and it is not known what"
            if isinstance(holders, NoAnswer):
                return f"{holders.reason}, and it is not known what" if theirs else ""
            # What the node itself runs is older, where it is no service.
            younger = (p for p in holders if not all(_older(p, handed_out.get(i), began) for i in ids))
            found = (p for p in younger if theirs and (p.opened is None or p.opened & theirs))
            return next((f"{each.named}, in no pod's cgroup," for each in found), "")

        return opener


def _older(process: Process, entry: Allocation | None, began: str) -> bool:
    """By seconds since boot, for the time of day may have been set; where no record has these, by when the pod began,
    unless an earlier pod may have had it too. What is not known is not older."""
    if entry is not None and (entry.up_seconds or entry.again):
        return 0 < process.up_seconds < entry.up_seconds
    return "" < process.since < began


def _lists(listed: Listed | NoAnswer, pod: NodePod, pods: ObservedPods) -> bool:
    """Or may list it. A listed name is that of another pod, where there is one."""
    successors = {other.key for other in pods.pods if other.uid != pod.uid}
    return isinstance(listed, NoAnswer) or (pod.key in listed.pods and pod.key not in successors)


def _complete(table: ProcessTable, pods: ObservedPods) -> bool:
    """Whether a process that is missing proves anything; one that is there always does.

    A kubelet that makes no cgroups of pods, or a namespace that hides them, would look like the end of all pods.
    """
    running = {pod.uid for pod in pods.pods if pod.started and not pod.ended and not pod.ending and not pod.outside}
    return bool(table.processes) and not (running and running.isdisjoint(table.pods()))
