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
from nodeagent.handover.watch import DirectoryWatches
from sandbox.nvidia_plugin.projection import ConfigMapVolume
from tests.nodeagent.device_plugin.fake_kubelet import WAIT_SECONDS
from tests.waiting import eventually

NUMBER = TypeAdapter(int)


def test_a_replaced_file_wakes_and_reading_it_does_not(tmp_path: Path) -> None:
    happened = threading.Event()
    watch = DirectoryWatches(happened.set)
    watch.follow(tmp_path)
    happened.clear()
    write_json(tmp_path / "a.json", NUMBER, 1)
    assert happened.wait(WAIT_SECONDS)
    write_json(tmp_path / "z.json", NUMBER, 1)
    (tmp_path / "quiet").touch()
    watch.follow()
    happened.clear()
    watch.follow(tmp_path)
    happened.clear()
    (tmp_path / "a.json").read_text()
    assert not happened.wait(0.3)
    watch.follow()


def test_a_directory_that_is_created_late_or_again(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    happened = threading.Event()
    watch = DirectoryWatches(happened.set)
    watch.follow(folder)
    assert not happened.is_set()
    for _ in range(2):
        folder.mkdir()
        watch.follow(folder)
        assert happened.is_set()  # there may be something in it already
        happened.clear()
        (folder / "f").touch()
        assert happened.wait(WAIT_SECONDS)
        shutil.rmtree(folder)
        eventually(lambda: not folder.exists(), "not folder.exists()")
        watch.follow(folder)
        happened.clear()
    watch.follow()


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
    watch = DirectoryWatches(happened.set)
    before = held()
    with monkeypatch.context() as exhausted:
        exhausted.setattr(inotify_c, call, refused)
        for _ in range(5):
            watch.follow(tmp_path)
    eventually(lambda: held() == before, "no file or thread of an attempt is left")
    assert not happened.is_set()

    watch.follow(tmp_path)
    happened.clear()
    (tmp_path / "f").touch()
    assert happened.wait(WAIT_SECONDS)
    watch.follow()


def test_what_was_said_of_a_directory_ends_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else it would be kept of each pod that ever came."""

    def refused(*_: object) -> int:
        ctypes.set_errno(errno.ENOSPC)
        return -1

    monkeypatch.setattr(inotify_c, "inotify_add_watch", refused)
    watches = DirectoryWatches(lambda: None)
    for _ in range(2):
        watches.follow(tmp_path)
        watches.follow(tmp_path)
        watches.follow()
    assert len([line for line in caplog.messages if line.startswith("cannot watch")]) == 2


def held() -> tuple[int, int]:
    """Open files and threads of this process."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def test_the_projection_of_a_config_map_wakes_where_its_volume_is_watched(tmp_path: Path) -> None:
    """The kubelet swaps a link in it; a watch of the file behind the link would see nothing."""
    happened = threading.Event()
    watches = DirectoryWatches(happened.set)
    volumes = [ConfigMapVolume(tmp_path / name) for name in ("a", "b")]
    for volume in volumes:
        volume.project({"default": "1"})
    watches.follow(*(volume.folder for volume in volumes))
    for volume in volumes:
        happened.clear()
        volume.project({"default": "1", "new": "2"})
        assert happened.wait(WAIT_SECONDS)
        assert (volume.folder / "..data" / "new").read_text() == "2"
    watches.follow()


def test_directories_that_are_not_named_any_more_are_not_watched(tmp_path: Path) -> None:
    """A pod that is created again has other ones."""
    happened = threading.Event()
    watches = DirectoryWatches(happened.set)
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    watches.follow(old)
    watches.follow(new)
    happened.clear()
    (old / "f").touch()
    assert not happened.wait(0.3)
    new.mkdir()
    watches.follow(new)  # it was not there before
    happened.clear()
    (new / "f").touch()
    assert happened.wait(WAIT_SECONDS)
    watches.follow()
