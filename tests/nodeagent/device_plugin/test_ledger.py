"""The ledger of Allocates: what it forgets, and that a full disk does not end the plugin."""

from pathlib import Path

from nodeagent.device_plugin.ledger import FORGET_SECONDS, Ledger
from nodeagent.handover.config import PluginFiles


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
