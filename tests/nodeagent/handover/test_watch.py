"""A directory is watched, also one that is created late or again."""

import shutil
import threading
from pathlib import Path

from pydantic import TypeAdapter

from nodeagent.handover.files import write_json
from nodeagent.handover.watch import DirectoryWatch
from tests.nodeagent.device_plugin.fake_kubelet import WAIT_SECONDS
from tests.waiting import eventually

NUMBER = TypeAdapter(int)


def test_a_replaced_file_wakes_and_reading_it_does_not(tmp_path: Path) -> None:
    happened = threading.Event()
    watch = DirectoryWatch(tmp_path, happened.set)
    watch.ensure()
    happened.clear()
    write_json(tmp_path / "a.json", NUMBER, 1)
    assert happened.wait(WAIT_SECONDS)
    write_json(tmp_path / "z.json", NUMBER, 1)
    (tmp_path / "quiet").touch()
    watch.stop()
    happened.clear()
    watch.ensure()
    happened.clear()
    (tmp_path / "a.json").read_text()
    assert not happened.wait(0.3)
    watch.stop()


def test_a_directory_that_is_created_late_or_again(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    happened = threading.Event()
    watch = DirectoryWatch(folder, happened.set)
    watch.ensure()
    assert not happened.is_set()
    for _ in range(2):
        folder.mkdir()
        watch.ensure()
        assert happened.is_set()  # there may be something in it already
        happened.clear()
        (folder / "f").touch()
        assert happened.wait(WAIT_SECONDS)
        shutil.rmtree(folder)
        eventually(lambda: not folder.exists(), "not folder.exists()")
        watch.ensure()
        happened.clear()
    watch.stop()
