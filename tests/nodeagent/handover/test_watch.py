"""A directory is watched, also one that is created late or again."""

import ctypes
import errno
import shutil
import threading
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from watchdog.observers import inotify_c

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


@pytest.mark.parametrize(
    ("call", "limit"),
    [("inotify_init", errno.EMFILE), ("inotify_add_watch", errno.ENOSPC)],
    ids=["instances", "watches"],
)
def test_an_exhausted_limit_costs_no_file_and_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, limit: int
) -> None:
    def refused(*_: object) -> int:
        ctypes.set_errno(limit)
        return -1

    happened = threading.Event()
    watch = DirectoryWatch(tmp_path, happened.set)
    before = held()
    with monkeypatch.context() as exhausted:
        exhausted.setattr(inotify_c, call, refused)
        for _ in range(5):
            watch.ensure()
    eventually(lambda: held() == before, "no file or thread of an attempt is left")
    assert not happened.is_set()

    watch.ensure()
    happened.clear()
    (tmp_path / "f").touch()
    assert happened.wait(WAIT_SECONDS)
    watch.stop()


def held() -> tuple[int, int]:
    """Open files and threads of this process."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
