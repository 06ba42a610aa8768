"""Remembers on disk which pod held which device: a witness where the kubelet's present List cannot be one.

Takes the readings of each pass, returns a `Usage` without the present List. It remembers the ids that pods were
observed with, because a List that lost a pod shows nothing of its containers. It doubts an id that a pod's entry in the
List has lost, because that entry has no UID and may be that of a new pod of the same name, and an answered Allocate
until its pod was observed or its time ran out. It believes the checkpoint's entries of pods that were not observed to
end. Must be on disk before anything is destroyed on its evidence.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from nodeagent.durations import Durations
from nodeagent.handover.config import Allocation, LedgerMark
from nodeagent.handover.files import write_json
from nodeagent.hardware.gpu_ids import lasts
from nodeagent.observed.ends import EMPTY_SECONDS, Ends, Gone
from nodeagent.observed.kubelet import CheckpointEntry, Listed, NoAnswer
from nodeagent.observed.lost_records import LostRecords
from nodeagent.observed.memory import MEMORY, Holding, Memory, read_memory
from nodeagent.observed.pods import DEFAULT_GRACE_SECONDS, NodePod, ObservedPods
from nodeagent.observed.shared_ids import FORGOTTEN_SECONDS, SharedIds, lacks
from nodeagent.observed.usage import Usage, lists_all_of


class Holdings:
    """One per agent."""

    def __init__(self, path: Path, *, clock: Callable[[], float], slack_seconds: float, boot_id: str = "") -> None:
        self._path, self._boot_id = path, boot_id
        self._slack_seconds, self._patience_seconds = slack_seconds, DEFAULT_GRACE_SECONDS + slack_seconds
        self._durations = Durations(clock)
        aside = path.with_name(f"{path.name}.unreadable")
        self._saved = saved = read_memory(path, aside)
        if "" not in (saved.boot_id, boot_id) and saved.boot_id != boot_id:
            # No container outlives its boot: what one has in this boot the kubelet shows, or its processes. Until
            # these have answered, what is observed now is saved as of no known boot.
            self._saved = replace(saved, pods=(), forgotten=(), boot_id="")
        self._pods = {holding.uid: holding for holding in self._saved.pods}
        self._answered, self._ended = self._saved.answered, self._saved.ended
        self._forgotten = self._saved.forgotten
        mark = self._saved.ledger if self._saved.boot_id == boot_id else None
        earlier = saved.ledger if saved.boot_id or saved.ledger.book else None
        self.records = LostRecords(aside, mark, earlier, self._durations, self._patience_seconds)
        self._shared = SharedIds(self._durations)
        self._asked = set[tuple[str, float]]()
        self.problem = ""
        """Why the memory is not on disk; while it is not, nothing may be destroyed on its evidence."""

    def votes(
        self,
        pods: ObservedPods,
        listed: Listed | NoAnswer,
        allocations: Iterable[Allocation],
        checkpoint: Iterable[CheckpointEntry],
        ends: Ends,
        *,
        unseen: Collection[str] = (),
        believed: bool = True,
    ) -> Usage:
        """Take in this pass's readings; return which witness claims which id. `pods` have ended as `ends` has it.
        `unseen`: as `unseen` has it. `believed`: the records are whole, and the kubelet has had its time."""
        entries, allocations = tuple(checkpoint), tuple(allocations)
        handed = frozenset(entry.resource for entry in allocations)
        # Until the pods were read, a pod that is missing has not vanished.
        if pods.synced:
            self._pods = {uid: holding for uid, holding in self._pods.items() if uid not in ends.ended}
            self._remember(pods, listed)
            self._remember_claims(pods, entries)
            self._remember_gone(ends, handed)
            self._restore(pods)
            self._forgotten = self._lost_by(pods, listed)
        self._left_with(allocations, listed, ends)
        known = self._known(pods, entries)
        held = {i: holding.title for _, holding in sorted(self._pods.items()) for i in holding.ids}
        held.update({i: pod.title for pod in pods.unended for i in known.get(pod.uid, ())})
        late = self.replaced if ends.stale is None else ends.stale
        doubtful = self._doubts(allocations, listed, _shown(pods, listed, late), ends)
        doubtful.update(self._earlier_doubts(pods, ends))
        # Where processes are not seen, nothing but time tells of a pod that came and went before this agent.
        watched = self._durations.seconds("watched") >= self._patience_seconds
        sure = believed and pods.synced and (watched if ends.strangers is None else not ends.strangers)
        doubtful = self._unseen_doubts(unseen, ends, sure=sure) | doubtful
        # A stray may be the process of the pod that has them. Of a new pod List and watch tell within a moment.
        strays = {i for i in doubtful if ends.stray and self._durations.seconds("stray", i) >= FORGOTTEN_SECONDS}
        doubtful = {i: f"{why}, and {ends.strangers}" if ends.stray else why for i, why in doubtful.items()}
        self._mark_ended(entries, pods, ends)
        twice = self._shared.twice(pods, known)
        self._save()
        left = strays.union(i for uid in ends.left for i in known.get(uid, ()))
        unsure = {*doubtful, *left, *ends.opened}
        self._shared.end_pass(allocations, pods, known, sure=sure, unsure=unsure, ended=self._ended)
        self._durations.end_pass()
        votes = Usage(held=held, known=known, doubtful=doubtful, forgotten=self._forgotten, twice=twice, left=left)
        return replace(votes, alone=self._shared.alone)

    def gone(
        self, pods: ObservedPods, checkpoint: Iterable[CheckpointEntry], allocations: Iterable[Allocation]
    ) -> tuple[Gone, ...]:
        """The pods that may hold ids although the API does not show them, or shows them as finished."""
        entries, handed = tuple(checkpoint), frozenset(entry.resource for entry in allocations)
        found = {entry.pod_uid: NodePod(uid=entry.pod_uid, namespace="", name="") for entry in entries}
        found.update({uid: holding.gone() for uid, holding in self._pods.items()})
        found.update({pod.uid: pod for pod in pods.vanished})
        for uid in {pod.uid for pod in pods.pods if not (pod.ending or pod.ended)} | set(self._ended):
            found.pop(uid, None)
        found.update({pod.uid: pod for pod in pods.pods if pod.uid in found or (pod.ending and not pod.ended)})
        known = dict.fromkeys(found, frozenset[str]()) | self._known(pods, entries)
        lacking = {uid for uid, pod in found.items() if lacks(replace(pod, hidden=()), known, handed)}
        return tuple(
            Gone(pod=pod, ids=known[uid], lacks=uid in lacking, finished=uid in pods.ended)
            for uid, pod in sorted(found.items())
        )

    def unnamed(
        self, pods: ObservedPods, listed: Listed | NoAnswer, checkpoint: Iterable[CheckpointEntry], ends: Ends
    ) -> str:
        """A pod that lives, and that requests more devices than any record names.

        While the kubelet cannot write to the API, a pod that runs looks there as if it had never been admitted.
        """
        known, lists = self._known(pods, checkpoint), listed if isinstance(listed, Listed) else Listed()
        known |= {pod.uid: known.get(pod.uid, frozenset()) | lists.ids([pod.key]) for pod in pods.pods}
        running = (pod for pod in pods.pods if pod.uid in ends.running and not pod.ended)
        found = (f"{p.title} {'runs' if p.started else 'may run'}" for p in running if lacks(p, known, frozenset()))
        return next((f"pod {which}, and no record names its devices" for which in found), "")

    def of_this_boot(self, allocations: Iterable[Allocation]) -> tuple[Allocation, ...]:
        """Without those of which the plugin knows that they were answered before the node restarted."""
        return tuple(e for e in allocations if "" in (e.boot_id, self._boot_id) or e.boot_id == self._boot_id)

    def unseen(self, allocations: Iterable[Allocation]) -> frozenset[str]:
        """Ids that a pod may have had which no record names: handed out again, or for long with no pod observed."""
        long = (entry.id for entry, seconds in self._waited(allocations).items() if seconds >= EMPTY_SECONDS)
        return frozenset(entry.id for entry in allocations if entry.again).union(long)

    def asks(self, allocations: Iterable[Allocation], listed: Listed | NoAnswer) -> bool:
        """Whether it matters now if the watch is late: an Allocate would be over, or the List shows another pod's. Call
        it once a pass: where a process keeps an Allocate from being over, each pass would ask the API server."""
        waited = self._waited(allocations).items()
        turns = {(e.id, seconds // EMPTY_SECONDS) for e, seconds in waited if seconds >= self._patience_seconds}
        new, self._asked = {i for i, _ in turns - self._asked}, turns
        return bool(self.replaced or (isinstance(listed, Listed) and new - listed.ids()))

    def doubts(self, allocations: Iterable[Allocation], ledger: Path, mark: LedgerMark) -> bool:
        """Whether a pod that nothing knows would matter."""
        again = any(entry.again and entry.id not in self._shared.alone for entry in allocations)
        return again or bool(self._waited(allocations) or self.replaced or self.records.losses(ledger, mark))

    @property
    def replaced(self) -> frozenset[str]:
        """UIDs of pods of whose name the List showed another device: the watch may be late, and it is another pod's."""
        return frozenset(uid for uid, holding in self._pods.items() if holding.earlier)

    def _save(self) -> None:
        memory = Memory(
            pods=tuple(holding for _, holding in sorted(self._pods.items())),
            answered=self._answered,
            ended=self._ended,
            forgotten=self._forgotten,
            boot_id=self._saved.boot_id if self.records.mark is None else self._boot_id,
            ledger=self.records.mark or self._saved.ledger,
        )
        self.problem = ""
        if memory != self._saved or not self._path.exists():
            try:
                write_json(self._path, MEMORY, memory)
            except OSError as error:
                self.problem = f"the agent's memory of holders cannot be written: {error}"
                return
            self._saved = memory

    def _waited(self, allocations: Iterable[Allocation]) -> dict[Allocation, float]:
        """For how many seconds no pod was observed with each, where none was yet."""
        doubted = (entry for entry in allocations if self._answered.get(entry.id) != entry.at)
        return {entry: self._durations.seconds("allocation", entry.id, repr(entry.at)) for entry in doubted}

    def _known(self, pods: ObservedPods, checkpoint: Iterable[CheckpointEntry]) -> dict[str, frozenset[str]]:
        found = {uid: set(holding.ids) for uid, holding in self._pods.items()}
        for pod in pods.unended:
            found.setdefault(pod.uid, set()).update(pod.reported)
        for entry in checkpoint:
            found.setdefault(entry.pod_uid, set()).update(entry.ids)
        return {uid: frozenset(ids) for uid, ids in sorted(found.items())}

    def _remember(self, pods: ObservedPods, listed: Listed | NoAnswer) -> None:
        for pod in pods.pods:
            if isinstance(listed, Listed) and pod.key in listed.pods and not pod.ended:
                self._note(pod, listed)

    def _remember_claims(self, pods: ObservedPods, checkpoint: Iterable[CheckpointEntry]) -> None:
        """Until the pod ends, whatever becomes of the records: not every kubelet lists claims."""
        living = {pod.uid: pod for pod in pods.pods if not pod.ended}
        for entry in checkpoint:
            if (pod := living.get(entry.pod_uid)) and (ids := {i for i in entry.ids if lasts(i)}):
                known = self._pods.get(pod.uid)
                self._hold(pod, ids.union(known.ids if known is not None else ()))

    def _remember_gone(self, ends: Ends, handed: frozenset[str]) -> None:
        """Until its end, whatever becomes of the records; without a device too: its process is no stranger's."""
        for each in ends.waiting:
            if each.pod.uid not in self._pods and not lacks(each.pod, {each.pod.uid: each.ids}, handed):
                self._hold(each.pod, each.ids)

    def _hold(self, pod: NodePod, ids: Iterable[str]) -> None:
        known = self._pods.get(pod.uid)
        self._pods[pod.uid] = Holding.of(pod, ids, known, known.earlier if known is not None else ())

    def _note(self, pod: NodePod, listed: Listed) -> None:
        ids = set(listed.ids([pod.key]))
        known = self._pods.get(pod.uid)
        before = known.ids if known is not None else ()
        # A kubelet that lost its memory lists a running pod without its devices, permanently.
        complete = lists_all_of(pod, listed.pods[pod.key])
        ids.update(i for i in before if lasts(i) or not complete)
        if ids:
            # No pod changes its devices: this is another pod, and the watch has not brought it, or it is ahead of List.
            earlier = {*set(before) - ids, *(known.earlier if known is not None else ())}
            self._pods[pod.uid] = Holding.of(pod, ids, known, earlier)

    def _restore(self, pods: ObservedPods) -> None:
        """A pod that is gone had what it was seen with first; what the List showed since may be its successor's."""
        living = {pod.uid: pod.title for pod in pods.pods}
        for uid, holding in sorted(self._pods.items()):
            if holding.earlier and uid not in living:
                theirs = {i for u, other in self._pods.items() if living.get(u) == holding.title for i in other.ids}
                ids = {*holding.earlier, *set(holding.ids).difference(theirs)}
                self._pods[uid] = replace(holding, ids=tuple(sorted(ids)), earlier=())

    def _lost_by(self, pods: ObservedPods, listed: Listed | NoAnswer) -> tuple[str, ...]:
        """A kubelet whose checkpoint was lost, or for which a phase was patched, lists a pod without its devices for as
        long as it runs, and gives them to the next pod. A new pod of the same name is listed so only for a moment."""
        found = set(self._forgotten).intersection(i for holding in self._pods.values() for i in holding.ids)
        if isinstance(listed, NoAnswer):
            return tuple(sorted(found))
        shown = listed.ids()
        for pod in pods.pods:
            holding, containers = self._pods.get(pod.uid), listed.pods.get(pod.key)
            if holding is not None and containers is not None and not lists_all_of(pod, containers):
                lost = (i for i in holding.ids if i not in shown)
                found |= {i for i in lost if self._durations.seconds("lost by", pod.uid, i) >= FORGOTTEN_SECONDS}
        return tuple(sorted(found - shown))

    def _left_with(self, allocations: Iterable[Allocation], listed: Listed | NoAnswer, ends: Ends) -> None:
        """The List may have shown with a gone pod what the next one has; what no pod was seen with may be its own.
        Not what was handed out after its first process began, which is that of its sandbox."""
        titles = {self._pods[uid].title for uid in ends.began.keys() & self._pods.keys()}
        lists = listed if isinstance(listed, Listed) else Listed()
        others = lists.ids(key for key in lists.pods if "/".join(key) not in titles)
        # Of an id that was handed out again the earlier Allocate may be its own, where no pod was seen with that one.
        theirs = [e for e in self._waited(allocations) if e.id not in (self._answered if e.again else others)]
        for uid in ends.began.keys() & self._pods.keys():
            found = {entry.id for entry in theirs if 0 < entry.up_seconds < ends.began[uid]}
            self._pods[uid] = replace(self._pods[uid], ids=tuple(sorted(found.union(self._pods[uid].ids))))

    def _earlier_doubts(self, pods: ObservedPods, ends: Ends) -> dict[str, str]:
        """The earlier pod's containers may run on. Its UID may be the later one's, where the watch was ahead."""
        living = {pod.uid for pod in pods.pods}
        doubtful: dict[str, str] = {}
        for uid, holding in sorted(self._pods.items()):
            grace_seconds = holding.grace_seconds if ends.strangers is None else DEFAULT_GRACE_SECONDS
            witnessed = ends.strangers or uid not in living
            patience_seconds = float("inf") if witnessed else grace_seconds + self._slack_seconds
            still = tuple(i for i in holding.earlier if self._durations.seconds("earlier", uid, i) < patience_seconds)
            self._pods[uid] = replace(holding, earlier=still)
            why = f"pod {holding.title} held it, and the kubelet lists a pod of this name with another device now"
            doubtful.update(dict.fromkeys(still, why))
        return doubtful

    def _doubts(
        self, allocations: Iterable[Allocation], listed: Listed | NoAnswer, shown: frozenset[str] | None, ends: Ends
    ) -> dict[str, str]:
        """`shown` are the ids that the List has now with pods that are there; None: that is not known."""
        # With a pod that the watch has not brought yet: that one came. Nor does a late watch prove that none came.
        strange = listed.ids() if isinstance(listed, Listed) else frozenset()
        asked = ends.strangers is None or ends.stale is not None
        entries = {entry.id: entry for entry in allocations}
        waited = self._waited(entries.values())
        answered = {i: at for i, at in self._answered.items() if (e := entries.get(i)) and (e.at == at or e.again)}
        doubtful = {}
        for entry in sorted(waited, key=lambda entry: entry.id):
            hidden = ends.strangers or entry.id in ends.opened or entry.id in strange
            late = waited[entry] >= self._patience_seconds and not hidden
            if late and not asked:
                self._asked.clear()  # what kept it from being over has ended: the next pass asks
            if shown is not None and (entry.id in shown or (late and asked)):
                answered[entry.id] = entry.at
            else:
                lost = "lost its record of Allocates, and may have handed it out"
                what = lost if entry.again and not entry.up_seconds else "handed it out"
                doubtful[entry.id] = f"the device plugin {what}, and no pod was observed with it yet"
        self._answered = answered
        return doubtful

    def _unseen_doubts(self, unseen: Collection[str], ends: Ends, *, sure: bool) -> dict[str, str]:
        """Of an id that was handed out again, the end of the pod that any record names proves nothing of the first.
        `sure`: no process of an unknown pod is left."""
        ids = sorted(i for i in unseen if i not in self._shared.alone and not (sure and i not in ends.opened))
        why = "the device plugin handed it out more than once, and a pod that no record names may have it"
        return {i: f"{why}: {ends.opened[i]} is left" if i in ends.opened else why for i in ids}

    def _mark_ended(self, checkpoint: Iterable[CheckpointEntry], pods: ObservedPods, ends: Ends) -> None:
        """The line of one that has ended is no other pod's, and as old."""
        ended = {entry.pod_uid for entry in checkpoint} & (ends.ended | set(self._ended))
        self._ended = tuple(sorted(ended - {pod.uid for pod in pods.unended}))


def _shown(pods: ObservedPods, listed: Listed | NoAnswer, replaced: Collection[str]) -> frozenset[str] | None:
    # Not what the memory has: an id may have been handed out again since then, to a pod that is not observed yet.
    if not pods.synced or isinstance(listed, NoAnswer):
        return None
    return listed.ids(pod.key for pod in pods.pods if not (pod.ended or pod.uid in replaced))
