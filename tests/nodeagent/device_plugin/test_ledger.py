"""The ledger of Allocates: what it forgets, and that a full disk does not end the plugin."""

import shutil
import time
from pathlib import Path

import pytest

from nodeagent.device_plugin.doubts import Doubts
from nodeagent.device_plugin.ledger import FORGET_SECONDS, Ledger
from nodeagent.handover.config import (
    Allocation,
    LedgerMark,
    Loaded,
    PluginConfig,
    PluginFiles,
    read_ledger_mark,
    write_config,
    write_ledger,
    write_loaded,
)
from nodeagent.handover.seen_free import SeenFree, read_seen_free, write_seen_free
from tests.nodeagent.device_plugin.devices import MIG, mig


def test_an_id_that_is_not_advertised_is_forgotten_after_a_day(tmp_path: Path) -> None:
    now = 1000.0
    ledger = Ledger(PluginFiles(tmp_path), clock=lambda: now)
    ledger.record("r/x", ["gone", "kept"])

    ledger.forget({"kept"})
    assert [entry.id for entry in ledger.entries()] == ["gone", "kept"]

    now += FORGET_SECONDS + 1
    ledger.forget({"kept"})
    assert [entry.id for entry in Ledger(PluginFiles(tmp_path)).entries()] == ["kept"]


def test_what_cannot_be_forgotten_on_disk_is_kept(tmp_path: Path) -> None:
    now = 1000.0
    files = PluginFiles(tmp_path)
    ledger = Ledger(files, clock=lambda: now)
    ledger.record("r/x", ["gone"])
    files.ledger.unlink()
    files.ledger.mkdir()  # a rename over a directory fails, also for root
    now += FORGET_SECONDS + 1

    ledger.forget(set())

    assert [entry.id for entry in ledger.entries()] == ["gone"]


def test_what_a_lost_record_may_have_had_was_handed_out_before(tmp_path: Path) -> None:
    files = PluginFiles(tmp_path)
    files.directory.mkdir()
    files.ledger.write_text("{")
    Ledger(files).record("r/x", ["a", "seen free"])
    ledger = Ledger(files)  # a further process
    ledger.record("r/x", ["seen free", "b"])
    found = {entry.id: entry.again for entry in ledger.entries()}
    assert found == {"a": True, "seen free": False, "b": True}


def test_a_device_that_a_lost_record_may_have_had_was_handed_out_first_at_an_unknown_time(tmp_path: Path) -> None:
    """Whether what has it open is older cannot be said then."""
    files = PluginFiles(tmp_path)
    files.directory.mkdir()
    files.ledger.write_text("{")
    ledger = Ledger(files)
    ledger.record("r/x", ["GPU-a", "MIG-a", "MIG-b"])
    ledger.record("r/x", ["MIG-a", "MIG-b"], {"MIG-a"})
    found = {entry.id: (entry.again, entry.up_seconds > 0) for entry in ledger.entries()}
    assert found == {"GPU-a": (True, False), "MIG-a": (True, False), "MIG-b": (False, True)}


@pytest.mark.parametrize("lost", ["deleted", "put back"])
def test_a_ledger_that_the_agent_knew_and_that_is_gone_was_lost(tmp_path: Path, lost: str) -> None:
    """A device that it may have named waits for the end of its earlier holder, in this process and in later ones."""
    files = PluginFiles(tmp_path)
    Ledger(files).record("r/x", ["a"])
    earlier = files.ledger.read_bytes()
    Ledger(files).record("r/x", ["b"])
    write_seen_free(files, SeenFree(ledger=read_ledger_mark(files)))

    files.ledger.unlink()
    if lost == "put back":
        files.ledger.write_bytes(earlier)
    ledger = Ledger(files)
    assert "was lost" in ledger.problem
    ledger.record("r/x", ["b"])
    assert {entry.id: entry.again for entry in ledger.entries()}["b"]
    assert not read_ledger_mark(files).follows(read_seen_free(files).ledger), "what the agent read is another ledger"

    write_seen_free(files, SeenFree(ledger=read_ledger_mark(files)))
    later = Ledger(files)
    assert later.problem == ""
    later.record("r/x", ["c"])
    assert {entry.id: entry.again for entry in later.entries()}["c"]


def test_a_ledger_that_the_agent_has_read_is_whole_however_often_it_is_written(tmp_path: Path) -> None:
    files = PluginFiles(tmp_path)
    Ledger(files).record("r/x", ["a"])
    write_seen_free(files, SeenFree(ledger=read_ledger_mark(files)))
    Ledger(files).record("r/x", ["b"])
    ledger = Ledger(files)
    assert ledger.problem == ""
    ledger.record("r/x", ["c"])
    assert not any(entry.again for entry in ledger.entries())


@pytest.mark.parametrize("lost", ["deleted", "unreadable"])
def test_a_loss_that_is_not_marked_on_disk_is_known_while_the_process_runs(tmp_path: Path, lost: str) -> None:
    """Where the disk was full, or the mark is wiped with the rest of the directory."""
    files = PluginFiles(tmp_path)
    Ledger(files).record("r/x", ["a"])
    write_seen_free(files, SeenFree(ledger=read_ledger_mark(files)))
    files.ledger.unlink() if lost == "deleted" else files.ledger.write_text("{")
    ledger = Ledger(files)
    files.lost_ledger.unlink()

    ledger.record("r/x", ["a"])
    ledger.record("r/x", ["b"])
    assert all(entry.again for entry in ledger.entries())


def test_a_ledger_that_is_deleted_below_its_process_is_written_again(tmp_path: Path) -> None:
    files = PluginFiles(tmp_path)
    ledger = Ledger(files)
    ledger.probe()
    ledger.record("r/x", ["a"])
    before = read_ledger_mark(files)
    shutil.rmtree(files.directory)

    ledger.probe()
    assert [entry.id for entry in Ledger(files).entries()] == ["a"]
    assert read_ledger_mark(files).follows(before)
    written = files.ledger.stat().st_mtime_ns
    ledger.probe()
    assert files.ledger.stat().st_mtime_ns == written


def test_a_ledger_of_an_earlier_boot_that_was_put_back_names_no_one_of_this_boot(tmp_path: Path) -> None:
    """As a restored backup: of a device that this boot has handed out since, no one knows whether a process is left."""
    files = PluginFiles(tmp_path)
    Ledger(files, boot_id="first").record("r/x", ["a", "b"])
    earlier = files.ledger.read_bytes()
    Ledger(files, boot_id="second").record("r/x", ["a", "b"])
    write_seen_free(files, SeenFree(ledger=read_ledger_mark(files)))
    files.ledger.write_bytes(earlier)

    ledger = Ledger(files, boot_id="second")
    ledger.recall("r/x", ["a"])
    ledger.record("r/x", ["b"])

    assert {entry.id: entry.again for entry in ledger.of_this_boot()} == {"a": True, "b": True}


def test_what_was_not_seen_free_meanwhile_may_be_open_since_the_first_allocate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ups = iter([10.0, 20.0, 30.0])
    monkeypatch.setattr(time, "clock_gettime", lambda _clock: next(ups))
    ledger = Ledger(PluginFiles(tmp_path))
    ledger.record("r/x", ["a", "b"])
    ledger.record("r/x", ["a", "b"], {"a"})
    assert {entry.id: (entry.up_seconds, entry.again) for entry in ledger.entries()} == {
        "a": (10.0, True),
        "b": (20.0, False),
    }
    ledger.record("r/x", ["a"])
    assert {entry.id: entry.up_seconds for entry in ledger.entries()} == {"a": 30.0, "b": 20.0}


def test_a_record_is_on_disk_before_the_first_allocate(tmp_path: Path) -> None:
    """So that one that is not there was lost."""
    files = PluginFiles(tmp_path)
    ledger = Ledger(files)
    assert read_ledger_mark(files) == (ledger.book, 1)
    assert Ledger(files).book == ledger.book
    assert (ledger.problem, ledger.entries()) == ("", ())


@pytest.mark.parametrize("lost", ["unreadable", "deleted", "begun by another", "known to the agent"])
def test_a_record_that_no_agent_may_have_read_and_that_was_lost_leaves_every_device_in_doubt(
    tmp_path: Path, lost: str
) -> None:
    files = PluginFiles(tmp_path)
    ledger = Ledger(files)
    write_loaded(files, Loaded(hash="", boot_token="t", registered={}, mps_root="/run/mps", book=ledger.book))
    write_config(files, PluginConfig.of([mig(0), mig(1)], withdrawn=["MIG-1"]))
    ledger.record(MIG, ["MIG-0"])
    if lost == "known to the agent":
        files.loaded.unlink()
        write_seen_free(files, SeenFree(ledger=read_ledger_mark(files)))
    files.ledger.unlink()
    if lost == "unreadable":
        files.ledger.write_text("{")
    if lost == "begun by another":
        write_ledger(files, [], LedgerMark("another", 9))

    for _ in range(2):
        later = Ledger(files, boot_id="this")
        assert {(entry.id, entry.again, entry.up_seconds, entry.boot_id) for entry in later.of_this_boot()} == {
            ("MIG-0", True, 0, "this"),
            ("MIG-1", True, 0, "this"),
        }
        write_loaded(files, Loaded(hash="", boot_token="t", registered={}, mps_root="/run/mps", book=later.book))
        write_seen_free(files, SeenFree(ledger=read_ledger_mark(files)))
    assert later.problem == "", "it was lost once"


def test_an_earlier_version_without_an_allocate_has_lost_nothing(tmp_path: Path) -> None:
    """It wrote no ledger until then, and named none."""
    files = PluginFiles(tmp_path)
    write_loaded(files, Loaded(hash="", boot_token="t", registered={}, mps_root="/run/mps"))
    write_config(files, PluginConfig.of([mig(0)]))
    ledger = Ledger(files)
    assert (ledger.problem, ledger.entries()) == ("", ())
    assert not files.lost_ledger.exists()


def full_disk(files: PluginFiles) -> Path:
    """Nothing is written over a directory, by root neither."""
    obstacle = files.directory / ".ledger.json.tmp"
    obstacle.mkdir(parents=True)
    return obstacle


def report(files: PluginFiles, book: str = "") -> None:
    write_loaded(files, Loaded(hash="", boot_token="t", registered={}, mps_root="/run/mps", book=book))


def test_a_record_that_could_never_be_written_was_not_lost(tmp_path: Path) -> None:
    """On a full disk no device was handed out: what is begun later is no loss, which would doubt each device."""
    files = PluginFiles(tmp_path)
    write_config(files, PluginConfig.of([mig(0)]))
    obstacle = full_disk(files)
    first = Ledger(files)
    assert first.unwritable
    report(files, first.book)
    obstacle.rmdir()

    second = Ledger(files)
    assert (second.problem, second.entries(), files.lost_ledger.exists()) == ("", (), False)
    report(files, second.book)
    files.ledger.unlink()
    full_disk(files)
    third = Ledger(files)
    report(files, third.book)
    assert third.book == second.book, "it stays lost until another one is on disk"
    assert Ledger(files).problem


@pytest.mark.parametrize(
    "damage", ["loaded.json is cut", "loaded.json is of an earlier version, and the disk was full"]
)
def test_a_record_that_is_not_there_was_lost_where_other_evidence_is_damaged(tmp_path: Path, damage: str) -> None:
    files = PluginFiles(tmp_path)
    write_config(files, PluginConfig.of([mig(0)]))
    if damage == "loaded.json is cut":
        Ledger(files).record(MIG, ["MIG-0"])
        files.ledger.unlink()
        files.loaded.write_text('{"hash"')
    else:
        report(files)
        files.ledger.write_text("{")
        obstacle = full_disk(files)
        assert Ledger(files).unwritable
        obstacle.rmdir()

    assert [(entry.id, entry.again) for entry in Ledger(files).entries()] == [("MIG-0", True)]


def test_when_a_device_was_handed_out_in_a_boot_that_is_not_known_says_nothing_of_processes(tmp_path: Path) -> None:
    files = PluginFiles(tmp_path)
    write_ledger(files, [Allocation(id="MIG-0", resource=MIG, at=1.0, up_seconds=1e6)], LedgerMark("a", 1))
    write_seen_free(files, SeenFree(ledger=LedgerMark("a", 9)))
    assert [entry.up_seconds for entry in Ledger(files, boot_id="now").entries()] == [0.0]


def test_a_mark_from_before_an_older_ledger_was_put_back_frees_nothing(tmp_path: Path) -> None:
    """The ledger that came between may have handed the device out, and no agent has read it."""
    files = PluginFiles(tmp_path)
    Ledger(files, clock=lambda: 1.0).record(MIG, ["MIG-0"])
    write_seen_free(files, SeenFree(allocations={"MIG-0": 1.0}, ledger=read_ledger_mark(files)))
    report(files, "the one that came between")
    later = Ledger(files, clock=lambda: 2.0)
    assert Doubts(files, tmp_path / "no checkpoint", later).unmarked() == {"MIG-0"}
