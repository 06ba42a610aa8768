"""What is remembered of holders, one rule at a time: readings go in, and what may not be given away comes out."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.handover.config import NO_LEDGER, Allocation, LedgerMark
from nodeagent.handover.files import write_json
from nodeagent.observed.ends import Ends, Gone
from nodeagent.observed.holdings import Holdings
from nodeagent.observed.kubelet import CheckpointEntry, Listed, NoAnswer
from nodeagent.observed.memory import MEMORY
from nodeagent.observed.memory import Memory as Saved
from nodeagent.observed.pods import NodePod, ObservedPods
from nodeagent.observed.usage import Usage
from tests.clock import Clock

MIG = "nvidia.com/mig-1g.10gb"
A, B, C = (f"MIG-00000000-0000-0000-0000-00000000000{letter}" for letter in "abc")
CLAIMED = "gpu.nvidia.com/gpu-0"
SLACK = 5.0
PATIENCE = 30.0 + SLACK
SILENT = NoAnswer(reason="no answer")


def pod(uid: str = "u1", name: str = "p", count: int = 1, **fields: object) -> NodePod:
    containers = (("main", ((MIG, count),)),) if count else ()
    return NodePod(uid=uid, namespace="n", name=name, containers=containers, **fields)  # type: ignore[arg-type]  # of literals


def lists(name: str = "p", *ids: str) -> Listed:
    return Listed(pods={("n", name): {"main": {MIG: ids}}})


def entry(uid: str, *ids: str) -> CheckpointEntry:
    return CheckpointEntry(pod_uid=uid, ids=ids)


def ends(*ended: str, strangers: str | None = "", **fields: object) -> Ends:
    return Ends(ended=frozenset(ended), strangers=strangers, **fields)  # type: ignore[arg-type]  # of literals


MARK = LedgerMark("book", 3)


def saved_as(**fields: object) -> Saved:
    return Saved(answered={}, **fields)  # type: ignore[arg-type]  # of literals


class Memory:
    """An agent's memory, and what it is shown."""

    def __init__(self, folder: Path) -> None:
        self.path, self.clock = folder / "holdings.json", Clock()
        self.restart("boot-1")

    def restart(self, boot_id: str) -> None:
        self.holdings = Holdings(self.path, clock=self.clock, slack_seconds=SLACK, boot_id=boot_id)

    def see(
        self,
        *pods: NodePod,
        listed: Listed | NoAnswer | None = None,
        handed: Iterable[Allocation] = (),
        checkpoint: Iterable[CheckpointEntry] = (),
        end: Ends | None = None,
        vanished: Iterable[NodePod] = (),
        synced: bool = True,
        seconds: float = 0.0,
    ) -> Usage:
        """A pass, so many seconds after the one before."""
        self.clock.now += seconds
        self.pods = ObservedPods(pods=pods, vanished=tuple(vanished), synced=synced)
        handed = tuple(handed)
        unseen = self.holdings.unseen(handed)
        return self.holdings.votes(self.pods, listed or Listed(), handed, checkpoint, end or ends(), unseen=unseen)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path)


def handed(device: str = A, at: float = 1.0, **fields: object) -> Allocation:
    return Allocation(id=device, resource=MIG, at=at, **fields)  # type: ignore[arg-type]  # of literals


def test_a_holder_is_remembered_until_it_ends_over_lists_that_lost_it_and_restarts(memory: Memory) -> None:
    first = memory.see(pod(), listed=lists("p", A))
    assert (first.held, first.known) == ({A: "n/p"}, {"u1": frozenset({A})})
    assert memory.see(pod()).held == {A: "n/p"}
    assert memory.see(vanished=[pod()]).held == {A: "n/p"}
    assert memory.see().held == {A: "n/p"}, "what ends only by its end"
    memory.restart("boot-1")
    assert memory.see().held == {A: "n/p"}
    assert memory.see(end=ends("u1"), synced=False).held == {A: "n/p"}, "until the pods were read, none has ended"
    assert memory.see(end=ends("u1")).held == {}
    memory.restart("boot-1")
    assert memory.see().held == {}


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("boot-1", "boot-1", True),
        ("boot-1", "boot-2", False),
        ("", "boot-2", True),
        ("boot-1", "", True),
    ],
)
def test_no_holder_outlives_its_boot_where_both_boots_are_known(
    memory: Memory, before: str, after: str, kept: bool
) -> None:
    memory.restart(before)
    memory.holdings.records.mark = NO_LEDGER
    memory.see(pod(), listed=lists("p", A))
    memory.restart(after)
    assert bool(memory.see().held) is kept


def test_what_is_saved_is_of_no_boot_until_the_witnesses_have_answered(memory: Memory) -> None:
    """A holder of this boot is not lost by an agent that began before they had."""
    memory.holdings.records.mark = NO_LEDGER
    memory.see(pod(), listed=lists("p", A))
    memory.restart("boot-2")
    memory.see(pod("u2", "q"), listed=lists("q", B))
    memory.restart("boot-3")
    assert memory.see().held == {B: "n/q"}


def test_what_was_forgotten_ends_with_its_boot(memory: Memory) -> None:
    memory.holdings.records.mark = NO_LEDGER
    memory.see(pod(), listed=lists("p", A))
    for _ in range(2):
        memory.see(pod(), listed=lists("p"), seconds=2)
    memory.restart("boot-2")
    assert memory.see(pod(), listed=SILENT).forgotten == ()


@pytest.mark.parametrize(
    ("saved", "lost", "unrecorded"),
    [
        (saved_as(), True, True),
        (saved_as(boot_id="boot-1", ledger=MARK), False, False),
        (saved_as(boot_id="boot-0", ledger=MARK), True, False),
        (saved_as(boot_id="boot-0"), True, False),
        (saved_as(ledger=MARK), True, False),
        (saved_as(ledger=LedgerMark("other", 1)), True, True),
    ],
    ids=["the first agent", "as it was", "after a reboot", "before there was a ledger", "of no known boot", "another"],
)
def test_records_belong_together(memory: Memory, saved: Saved, lost: bool, unrecorded: bool) -> None:
    """Lost is what was written between the memory and the ledger; unrecorded, where that may have been an Allocate."""
    write_json(memory.path, MEMORY, saved)
    memory.restart("boot-1")
    ledger = memory.path.with_name("ledger.unreadable")
    assert bool(memory.holdings.records.losses(ledger, MARK)) is lost
    assert memory.holdings.records.unrecorded(ledger, MARK) is unrecorded


def test_what_was_written_with_a_ledger_belongs_to_it_after_a_restart(memory: Memory) -> None:
    memory.holdings.records.mark = MARK
    memory.see()
    memory.restart("boot-1")
    ledger = memory.path.with_name("ledger.unreadable")
    assert memory.holdings.records.losses(ledger, MARK) == {}
    assert memory.holdings.records.losses(ledger, LedgerMark("other", 9)) != {}


def test_it_is_written_where_something_has_changed(memory: Memory) -> None:
    memory.see(pod(), listed=lists("p", A))
    before = memory.path.stat().st_ino
    for _ in range(2):
        memory.see(pod(), listed=lists("p", A))
        assert memory.path.stat().st_ino == before
    memory.see(pod(), listed=lists("p", B))
    assert memory.path.stat().st_ino != before


def test_it_says_that_it_cannot_write_and_writes_as_soon_as_it_can(memory: Memory) -> None:
    assert memory.holdings.problem == ""
    memory.path.mkdir()
    memory.see(pod(), listed=lists("p", A))
    assert "the agent's memory of holders cannot be written" in memory.holdings.problem
    memory.path.rmdir()
    memory.see(pod(), listed=lists("p", A))
    assert memory.holdings.problem == ""
    memory.path.unlink()
    memory.see(pod(), listed=lists("p", A))
    assert memory.path.exists(), "someone removed it"


@pytest.mark.parametrize("what", ["ended", "not listed", "not read", "no answer"])
def test_what_is_not_observed_is_not_remembered(memory: Memory, what: str) -> None:
    shown = Listed() if what == "not listed" else SILENT if what == "no answer" else lists("p", A)
    memory.see(pod(ended=what == "ended"), listed=shown, synced=what != "not read")
    assert memory.see().held == {}


def test_what_the_status_of_a_living_pod_reports_is_held_by_it(memory: Memory) -> None:
    assert memory.see(pod(reported=(B,)), listed=lists("p", A)).held == {A: "n/p", B: "n/p"}
    assert memory.see(pod(reported=(B,), ended=True), listed=lists("p", A)).held == {A: "n/p"}
    assert memory.see(vanished=[pod(reported=(C,))]).held == {A: "n/p", C: "n/p"}
    both = memory.see(pod("u2", "later", reported=(C,)), vanished=[pod(reported=(C,))])
    assert both.held[C] == "n/later", "the living one is named"


def test_the_checkpoint_names_holders_of_which_no_end_was_observed(memory: Memory) -> None:
    found = memory.see(pod(), checkpoint=[entry("u1", A), entry("gone", B)])
    assert found.known == {"u1": {A}, "gone": {B}}
    assert found.held == {A: "n/p"}, "of no pod that nothing knows; its end decides"


def test_what_a_claim_gives_is_remembered_from_the_checkpoint_alone(memory: Memory) -> None:
    memory.see(pod(), checkpoint=[entry("u1", CLAIMED, A), entry("u2", CLAIMED)])
    assert memory.see(pod()).held == {CLAIMED: "n/p"}, "a device of a plugin is in every List"
    memory.see(pod(), listed=lists("p", B))
    assert memory.see(pod()).held == {CLAIMED: "n/p", B: "n/p"}, "no List must show it"
    for _ in range(3):
        assert memory.see(pod(), listed=lists("p", B), seconds=5).forgotten == ()
    memory.see(pod("u3", "q", ended=True), checkpoint=[entry("u3", CLAIMED)])
    assert memory.see().known == {"u1": {B, CLAIMED}}


@pytest.mark.parametrize(
    ("each", "remembered"),
    [
        (Gone(pod=pod("g"), ids=frozenset({A})), True),
        (Gone(pod=pod("g"), ids=frozenset()), False),
        (Gone(pod=pod("g", count=0), ids=frozenset()), True),
        (Gone(pod=pod("g", count=2), ids=frozenset({A})), False),
    ],
)
def test_a_pod_that_is_gone_is_remembered_where_all_its_devices_are_known(
    memory: Memory, each: Gone, remembered: bool
) -> None:
    memory.see(handed=[handed()], end=ends(waiting=(each,)))
    assert ("g" in memory.see().known) is remembered
    memory.see(handed=[handed()], end=ends(waiting=(replace(each, ids=frozenset({B, C})),)))
    assert memory.see().known.get("g") == (each.ids if remembered else frozenset({B, C})), "what was known first counts"


def test_a_kubelet_that_lists_too_few_has_lost_its_record(memory: Memory) -> None:
    memory.see(pod(count=2), listed=lists("p", A, B))
    assert memory.see(pod(count=2), listed=lists("p", A)).known == {"u1": {A, B}}
    assert memory.see(pod(count=2), listed=lists("p")).doubtful == {}


def test_a_pod_without_a_device_is_not_remembered(memory: Memory) -> None:
    memory.see(pod(count=0), listed=lists("p"))
    assert memory.see().known == {}


def test_one_that_lists_another_device_shows_another_pod(memory: Memory) -> None:
    memory.see(pod(), listed=lists("p", A))
    changed = memory.see(pod(), listed=lists("p", B))
    assert changed.held == {B: "n/p"}
    assert changed.doubtful == {A: "pod n/p held it, and the kubelet lists a pod of this name with another device now"}
    again = memory.see(pod(), listed=lists("p", C))
    assert again.doubtful.keys() == {A, B}, "each of them"
    assert memory.see(pod(), checkpoint=[entry("u1", CLAIMED)]).doubtful.keys() == {A, B}
    assert memory.see(pod(), listed=lists("p", A)).doubtful.keys() == {A, B, C}, "it may be a third pod's"


@pytest.mark.parametrize(
    ("strangers", "living", "seconds"),
    [("", True, PATIENCE), (None, True, 10 + SLACK), ("a process", True, None), ("", False, None)],
)
def test_the_earlier_pod_may_run_on(memory: Memory, strangers: str | None, living: bool, seconds: float | None) -> None:
    """By its own grace where only time tells; for ever while a witness says so, or where it is gone."""
    memory.see(pod(grace_seconds=10), listed=lists("p", A))
    memory.see(pod(grace_seconds=10), listed=lists("p", B), end=ends(strangers=strangers))
    end = ends(strangers=strangers)
    later = [pod(grace_seconds=10)] if living else [pod("u9", "other")]
    shown = lists("p", B) if living else Listed()
    if seconds is not None:
        before = memory.see(*later, listed=shown, end=end, seconds=seconds - 1)
        assert A in before.doubtful
        assert A not in memory.see(*later, listed=shown, end=end, seconds=1).doubtful
        memory.restart("boot-1")
        assert A not in memory.see(*later, listed=shown, end=end).doubtful, "that is over for ever"
    else:
        found = memory.see(*later, listed=shown, end=end, seconds=3600)
        assert A in {*found.doubtful, *found.held}


def test_it_may_run_on_until_the_pods_were_read(memory: Memory) -> None:
    memory.see(pod(), listed=lists("p", A))
    memory.see(pod(), listed=lists("p", B))
    memory.restart("boot-1")
    for _ in range(2):
        assert A in memory.see(synced=False, seconds=3600).doubtful


def test_a_pod_that_is_gone_had_what_it_was_seen_with_first(memory: Memory) -> None:
    """Where the watch brought its successor of the same name late, the List showed that one's device as its own."""
    memory.see(pod("u1"), listed=lists("p", A))
    memory.see(pod("u1"), listed=lists("p", B))
    found = memory.see(pod("u2"), listed=lists("p", B), vanished=[pod("u1")])
    assert found.known == {"u1": {A}, "u2": {B}}
    assert found.doubtful == {}


def test_one_that_was_seen_with_one_device_keeps_it_whatever_its_successor_has(memory: Memory) -> None:
    memory.see(pod("u1"), listed=lists("p", A))
    assert memory.see(pod("u2"), listed=lists("p", A)).known == {"u1": frozenset({A}), "u2": frozenset({A})}


def test_without_a_successor_it_may_have_both(memory: Memory) -> None:
    memory.see(pod("u1"), listed=lists("p", A))
    memory.see(pod("u1"), listed=lists("p", B))
    assert memory.see(pod("u3", "other"), listed=lists("other", B)).known["u1"] == {A, B}


def test_a_device_that_the_list_has_lost_for_a_while_is_forgotten_by_the_kubelet(memory: Memory) -> None:
    memory.see(pod(), listed=lists("p", A))
    assert memory.see(pod(), listed=lists("p"), seconds=1).forgotten == ()
    assert memory.see(pod(), listed=lists("p"), seconds=1.9).forgotten == (), "a new pod of the same name is listed so"
    assert memory.see(pod(), listed=lists("p"), seconds=0.1).forgotten == (A,)
    assert memory.see(pod(), listed=SILENT).forgotten == (A,)
    memory.restart("boot-1")
    assert memory.see(pod(), listed=lists("p")).forgotten == (A,), "over a restart"
    with_another = Listed(pods={**lists("p").pods, **lists("q", A).pods})
    assert memory.see(pod(), listed=with_another).forgotten == (), "another pod has it in the List"


def test_a_moment_begins_again(memory: Memory) -> None:
    memory.see(pod(count=2), listed=lists("p", A, B))
    for _ in range(3):
        assert memory.see(pod(count=2), listed=lists("p", A), seconds=5).forgotten in ((), (B,))
    assert memory.see(pod(count=2), listed=lists("p")).forgotten == (B,), "A was shown until now"
    memory.see(pod(count=2), listed=lists("p", A), seconds=1.5)
    memory.see(pod(count=2), listed=lists("p"))
    assert memory.see(pod(count=2), listed=lists("p"), seconds=1.5).forgotten == (B,)


def test_what_is_forgotten_ends_with_its_holder(memory: Memory) -> None:
    memory.see(pod(), listed=lists("p", A))
    for _ in range(2):
        memory.see(pod(), listed=lists("p"), seconds=2)
    assert memory.see(end=ends("u1"), listed=SILENT).forgotten == ()


@pytest.mark.parametrize("why", ["whole list", "not listed", "never held"])
def test_nothing_is_forgotten_without_a_reason(memory: Memory, why: str) -> None:
    held = pod(count=0) if why == "whole list" else pod()
    memory.see(held, listed=lists("p", *(() if why == "never held" else (A,))))
    shown = Listed() if why == "not listed" else lists("p", *((B,) if why == "whole list" else ()))
    for _ in range(3):
        assert memory.see(held, listed=shown, seconds=5).forgotten == ()


def test_an_answered_allocate_is_doubted_until_its_pod_is_observed(memory: Memory) -> None:
    why = "the device plugin handed it out, and no pod was observed with it yet"
    assert memory.see(handed=[handed()]).doubtful == {A: why}
    assert memory.see(handed=[handed()], listed=lists("p", A)).doubtful == {A: why}, "the watch has not brought it"
    assert memory.see(pod(ended=True), handed=[handed()], listed=lists("p", A)).doubtful == {A: why}
    assert memory.see(pod(), handed=[handed()], listed=lists("p", A)).doubtful == {}
    memory.restart("boot-1")
    assert memory.see(handed=[handed()]).doubtful == {}
    assert memory.see(handed=[handed(at=2.0)]).doubtful == {A: why}, "handed out again"
    assert memory.see(handed=[handed(at=2.0), handed(B)]).doubtful.keys() == {A, B}
    memory.see(pod(), handed=[handed(at=2.0)], listed=lists("p", A))
    assert memory.see().doubtful == {}, "the ledger was emptied"
    assert memory.see(handed=[handed(at=2.0)]).doubtful == {A: why}


@pytest.mark.parametrize(
    ("fields", "over"),
    [
        ({"end": ends(stale=frozenset())}, True),
        ({}, False),
        ({"end": ends(strangers=None)}, True),
        ({"end": ends(strangers="a process of a pod that nothing knows")}, False),
        ({"listed": lists("new", A), "end": ends(stale=frozenset())}, False),
        ({"listed": SILENT, "end": ends(stale=frozenset())}, False),
        ({"synced": False, "end": ends(stale=frozenset())}, False),
    ],
    ids=["nothing came", "not asked", "by time", "a stranger", "listed", "no list", "no pods"],
)
def test_a_pod_that_never_came_is_doubted_for_as_long_as_it_could_come(
    memory: Memory, fields: dict[str, object], over: bool
) -> None:
    memory.see(handed=[handed()], **fields)  # type: ignore[arg-type]  # of the table
    assert memory.see(handed=[handed()], seconds=PATIENCE - 0.1, **fields).doubtful  # type: ignore[arg-type]
    assert bool(memory.see(handed=[handed()], seconds=0.1, **fields).doubtful) is not over  # type: ignore[arg-type]


def test_a_stray_process_may_be_that_of_the_pod_in_doubt(memory: Memory) -> None:
    end = ends(strangers="a stray process", stray=True)
    found = memory.see(handed=[handed()], end=end)
    assert found.doubtful[A].endswith("no pod was observed with it yet, and a stray process")
    assert found.left == set(), "of a new pod List and watch tell within a moment"
    assert memory.see(handed=[handed()], end=end, seconds=1.9).left == set()
    assert memory.see(handed=[handed()], end=end, seconds=0.1).left == {A}
    assert memory.see(handed=[handed()], end=ends(strangers="w"), seconds=9).left == set()


def test_what_is_left_of_a_pod_is_left_on_its_devices(memory: Memory) -> None:
    memory.see(pod(), listed=lists("p", A))
    assert memory.see(end=ends(left={"u1": "a process", "u7": "a process"})).left == {A}


def gone(memory: Memory, *pods: NodePod, checkpoint: Iterable[CheckpointEntry] = (), **fields: object) -> list[Gone]:
    seen = ObservedPods(pods=pods, synced=True, **fields)  # type: ignore[arg-type]  # of literals
    return list(memory.holdings.gone(seen, checkpoint, [handed()]))


def test_who_is_gone(memory: Memory) -> None:
    memory.see(pod("held", "h", started=True, grace_seconds=7), pod("here"), listed=lists("h", A))
    found = gone(
        memory,
        pod("here"),
        pod("ending", "e", ending=True),
        pod("no record", "r", ending=True),
        pod("over", "o", ended=True),
        vanished=(pod("vanished", "v"),),
        ended=frozenset({"over", "ending"}),
        checkpoint=[entry("line", B), entry("here", C), entry("over", C), entry("ending", C)],
    )
    assert {each.pod.uid: (sorted(each.ids), each.lacks, each.finished) for each in found} == {
        "ending": ([C], False, True),
        "held": ([A], False, False),
        "line": ([B], False, False),
        "no record": ([], True, False),
        "over": ([C], False, True),
        "vanished": ([], True, False),
    }
    held = next(each.pod for each in found if each.pod.uid == "held")
    assert (held.title, held.started, held.grace_seconds) == ("n/h", True, 7)
    titles = [each.pod.title for each in found if each.pod.uid in ("ending", "line", "over")]
    assert titles == ["n/e", "UID line", "n/o"], "as the API shows it, if it does"


def test_a_line_of_the_checkpoint_is_that_of_a_pod_that_has_ended(memory: Memory) -> None:
    line = [entry("u1", A), entry("u2", B)]
    memory.see(pod("u2", "q"), checkpoint=line, end=ends("u1", "u2"))
    assert [each.pod.uid for each in gone(memory, checkpoint=line)] == ["u2"], "u2 lives again, or still"
    memory.restart("boot-1")
    memory.see(checkpoint=line)
    assert [each.pod.uid for each in gone(memory, checkpoint=line)] == ["u2"], "over a restart"
    memory.see(checkpoint=[])
    memory.see(checkpoint=line)
    assert [each.pod.uid for each in gone(memory, checkpoint=line)] == ["u1", "u2"], (
        "a line that is written again is another"
    )


def test_a_pod_that_runs_and_has_no_record_is_named(memory: Memory) -> None:
    def named(one: NodePod, *, running: bool = True, listed: Listed | NoAnswer = SILENT) -> str:
        end = ends(running=frozenset({one.uid} if running else ()))
        return memory.holdings.unnamed(ObservedPods(pods=(one,), synced=True), listed, [], end)

    assert named(pod()) == "pod n/p may run, and no record names its devices"
    assert named(pod(started=True)) == "pod n/p runs, and no record names its devices"
    assert named(pod(), running=False) == ""
    assert named(pod(ended=True)) == ""
    assert named(pod(count=0)) == ""
    assert named(pod(), listed=lists("p", A)) == ""
    assert named(pod(), listed=lists("q", A)) != ""
    assert named(pod(count=2, reported=(A,)), listed=lists("p", B)) == "", "two records together"


def test_allocates_of_an_earlier_boot_are_left_out(memory: Memory) -> None:
    of_boots = [handed(A), handed(B, boot_id="boot-1"), handed(C, boot_id="boot-0")]
    assert [each.id for each in memory.holdings.of_this_boot(of_boots)] == [A, B]
    memory.restart("")
    assert [each.id for each in memory.holdings.of_this_boot(of_boots)] == [A, B, C]


def test_when_a_pod_that_nothing_knows_would_matter(memory: Memory) -> None:
    ledger, mark = memory.path.with_name("ledger.unreadable"), LedgerMark("book", 1)
    memory.holdings.records.mark = mark

    def matters(*found: Allocation) -> bool:
        return memory.holdings.doubts(found, ledger, mark)

    assert not matters()
    assert matters(handed())
    memory.see(pod(), handed=[handed()], listed=lists("p", A))
    assert not matters(handed())
    assert matters(handed(at=2.0))
    assert matters(handed(again=True)), "handed out again, and its only holder is not known"
    memory.see(pod(), handed=[handed(again=True)], listed=lists("p", A))
    assert not matters(handed(again=True))
    assert memory.holdings.doubts([], ledger, LedgerMark("other", 1)), "records that are not of one time"
    memory.see(pod(), handed=[handed()], listed=lists("p", B))
    assert matters(handed()), "what it had earlier"


@pytest.mark.parametrize(
    ("fields", "believed", "named"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"end": ends(strangers="a process")}, True, False),
        ({"end": ends(opened=frozenset({A}))}, True, False),
        ({"end": ends(left={"u0": "a process"}), "checkpoint": [entry("u0", A)]}, True, False),
        ({"checkpoint": [entry("u0", A)]}, True, False),
        ({"synced": False}, True, False),
    ],
    ids=["alone", "not believed", "a stranger", "open", "left", "another", "not read"],
)
def test_who_has_a_device_alone(memory: Memory, fields: dict[str, object], believed: bool, named: bool) -> None:
    memory.see(pod(), listed=lists("p", A), handed=[handed()])
    again, seen = [handed(again=True)], ObservedPods(pods=(pod(),), synced=fields.get("synced", True) is True)
    end, checkpoint = fields.get("end", ends()), fields.get("checkpoint", ())
    memory.holdings.votes(seen, lists("p", A), again, checkpoint, end, believed=believed)  # type: ignore[arg-type]
    assert memory.see(pod(), listed=lists("p", A), handed=again, end=ends(strangers="w")).alone == (
        {A: ("u1", 1.0)} if named else {}
    )


@pytest.mark.parametrize(
    ("end", "doubted"),
    [
        (ends(), False),
        (ends(strangers="a process is left of pod UID u0", stray=True), True),
        (ends(strangers="the node's processes were not read"), True),
        (ends(strangers=None), True),
        (ends(opened={A: "process 4711"}), True),
    ],
    ids=["nothing is left", "a stranger", "not read", "not seen", "open"],
)
@pytest.mark.parametrize("named", [True, False])
def test_the_end_of_a_later_holder_proves_nothing_of_an_earlier_one(
    memory: Memory, end: Ends, doubted: bool, named: bool
) -> None:
    """The first was replaced before the agent saw it. Where one pod is known to be the only holder, its end will do."""
    again = handed(again=True)
    memory.see(pod(), listed=lists("p", A), handed=[again], end=ends(strangers="" if named else "a process"))
    memory.see(handed=[again], end=ends("u1", strangers=end.strangers, stray=end.stray))
    found = memory.see(handed=[again], end=end)
    assert A not in found.held
    assert (A in found.doubtful) is (doubted and not named)


def test_where_processes_are_not_seen_time_tells_of_a_pod_that_came_and_went(memory: Memory) -> None:
    again, by_time = [handed(again=True)], ends(strangers=None)
    for seconds, named in ((0.0, False), (PATIENCE - 0.1, False), (0.1, True)):
        found = memory.see(pod(), listed=lists("p", A), handed=again, end=by_time, seconds=seconds)
        assert bool(found.alone) is named
