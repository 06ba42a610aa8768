"""A projected ConfigMap changes as kubelet's atomic writer changes it."""

import os
from pathlib import Path

from sandbox.nvidia_plugin.projection import ConfigMapVolume


def test_all_keys_change_in_one_move_and_the_old_folder_goes(tmp_path: Path) -> None:
    volume = ConfigMapVolume(tmp_path / "v")
    volume.project({"a": "1", "b": "1"})
    first = os.readlink(volume.folder / "..data")
    assert (volume.folder / "a").readlink() == Path("..data/a")
    opened = (volume.folder / "a").resolve()
    volume.project({"a": "2", "c": "2"})
    assert os.readlink(volume.folder / "..data") != first
    assert not opened.exists()
    assert (volume.folder / "a").read_text() == "2"
    assert volume.keys() == {"a", "c"}
    assert sorted(path.name for path in volume.folder.iterdir()) == ["..2", "..data", "a", "c"]


def test_the_same_data_is_not_written_again(tmp_path: Path) -> None:
    volume = ConfigMapVolume(tmp_path / "v")
    volume.project({"a": "1"})
    before = os.lstat(volume.folder / "..data")
    volume.project({"a": "1"})
    assert os.lstat(volume.folder / "..data").st_ino == before.st_ino
