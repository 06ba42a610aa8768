"""The plugin's config: what may replace what, and when it counts as loaded."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.advertise.config_file import ConfigFile, counts, render, without
from nodeagent.advertise.faults import Faults
from nodeagent.handover.config import (
    Device,
    DeviceKind,
    Loaded,
    PluginConfig,
    PluginFiles,
    read_config,
    write_config,
    write_loaded,
)


def device(name: str, resource: str = "nvidia.com/gpu-10gb") -> Device:
    return Device(id=name, resource=resource, gpu="GPU-1", kind=DeviceKind.MPS, memory_mib=1)


def config(*advertised: str, withdrawn: tuple[str, ...] = ()) -> PluginConfig:
    return PluginConfig.of([device(name) for name in (*advertised, *withdrawn)], withdrawn)


@pytest.fixture
def files(tmp_path: Path) -> PluginFiles:
    return PluginFiles(tmp_path)


def load(files: PluginFiles, loaded: PluginConfig) -> None:
    write_loaded(files, Loaded(hash=loaded.hash, boot_token="t", registered={}, mps_root="/run/mps"))


@pytest.mark.parametrize(
    ("then", "written"),
    [
        pytest.param(config("a", "b"), True, id="more"),
        pytest.param(config("a", "b", "c"), True, id="still more"),
        pytest.param(config("b"), False, id="one less"),
        pytest.param(config("b", withdrawn=("a",)), False, id="one withdrawn"),
        pytest.param(config("b", "c", withdrawn=("a",)), False, id="one for another"),
    ],
)
def test_a_config_is_not_replaced_by_one_with_less_before_it_was_loaded(
    files: PluginFiles, then: PluginConfig, written: bool
) -> None:
    file = ConfigFile(files)
    first = config("a", "b")
    assert file.write(first, in_force=False, overdue=False)

    assert file.write(then, in_force=False, overdue=False) is written
    assert file.write(then, in_force=True, overdue=False)
    assert file.write(first, in_force=True, overdue=False)
    assert file.write(then, in_force=False, overdue=True)
    assert ConfigFile(files).config == then


def test_a_config_is_in_force_when_the_plugin_loaded_it_after_it_was_written(files: PluginFiles) -> None:
    file = ConfigFile(files)
    first, second = config("a"), config("a", "b")
    assert not file.in_force(None)
    file.write(first, in_force=False, overdue=False)
    load(files, first)
    assert file.in_force(file.loaded())

    file.write(second, in_force=True, overdue=False)
    assert not file.in_force(file.loaded())

    # The same text again: an older confirmation does not count for it.
    file.write(first, in_force=False, overdue=True)
    later = files.loaded.stat().st_mtime_ns + 1_000_000
    os.utime(files.config, ns=(later, later))
    assert not file.in_force(file.loaded())


def test_an_answer_that_is_replaced_while_it_is_read_counts_with_its_own_time(files: PluginFiles) -> None:
    """The plugin has loaded `first`, then `second`, and the agent has written `first` again in between."""
    file = ConfigFile(files)
    first, second = config("a"), config("a", "b")
    file.write(first, in_force=False, overdue=False)
    load(files, first)
    before = file.loaded()

    file.write(second, in_force=True, overdue=False)
    file.write(first, in_force=False, overdue=True)
    load(files, second)

    assert not file.in_force(before)


def test_an_unreadable_config_is_written_again(files: PluginFiles) -> None:
    files.directory.mkdir()
    files.config.write_text("{")
    file = ConfigFile(files)

    assert file.write(PluginConfig(), in_force=False, overdue=False)
    assert ConfigFile(files).config == PluginConfig()


def test_an_empty_config_is_written_once(files: PluginFiles) -> None:
    file = ConfigFile(files)
    assert file.write(PluginConfig(), in_force=False, overdue=False)
    before = files.config.stat().st_mtime_ns

    assert ConfigFile(files).write(PluginConfig(), in_force=False, overdue=False)
    assert files.config.stat().st_mtime_ns == before


def test_counts_keep_the_resource_of_which_all_is_withdrawn(files: PluginFiles) -> None:
    write_config(files, config("a", withdrawn=("b",)))

    assert counts(config("a", withdrawn=("b",))) == {"nvidia.com/gpu-10gb": 1}
    assert counts(config(withdrawn=("b",))) == {"nvidia.com/gpu-10gb": 0}


def test_a_removed_config_is_written_again(files: PluginFiles) -> None:
    file = ConfigFile(files)
    file.write(config("a"), in_force=False, overdue=False)
    files.config.unlink()

    assert file.write(config("a"), in_force=False, overdue=False)

    assert ConfigFile(files).config == config("a")


def test_a_config_from_the_future_is_written_again(files: PluginFiles) -> None:
    """The clock was set back: no confirmation would ever be younger than it."""
    ConfigFile(files).write(config("a"), in_force=False, overdue=False)
    os.utime(files.config, (time.time() + 3600, time.time() + 3600))
    file = ConfigFile(files)
    load(files, config("a"))
    assert not file.in_force(file.loaded())

    file.write(config("a"), in_force=False, overdue=False)
    load(files, config("a"))

    assert file.in_force(file.loaded())


def test_a_confirmation_that_cannot_be_read_is_logged_once(
    files: PluginFiles, caplog: pytest.LogCaptureFixture
) -> None:
    file = ConfigFile(files)
    file.write(config("a"), in_force=False, overdue=False)
    files.loaded.write_text("{")

    assert [file.loaded() for _ in range(3)] == [None] * 3
    assert len([line for line in caplog.messages if "loaded.json" in line]) == 1

    load(files, config("a"))
    assert file.loaded() is not None
    files.loaded.write_text("{")
    assert file.loaded() is None
    assert len([line for line in caplog.messages if "loaded.json" in line]) == 2


def test_the_same_config_is_written_again_in_another_boot(files: PluginFiles) -> None:
    ConfigFile(files).write(replace(config("a"), boot_id="one"), in_force=False, overdue=False)
    file = ConfigFile(files, boot_id="two")
    load(files, config("a"))
    assert file.in_force(file.loaded())

    file.write(render([], file.config, Faults(), boot_id="two"), in_force=True, overdue=False)

    found = read_config(files)
    assert isinstance(found, PluginConfig)
    assert found.boot_id == "two"


def test_nothing_is_left_of_a_device_whose_record_ends() -> None:
    one, two = device("a"), device("b")
    whole = PluginConfig.of([one, two], withdrawn=["a", "b"], unhealthy=["a", "b"])
    found = without(replace(whole, drained=("a", "b")), {"a"})

    assert (found.devices, found.withdrawn, found.unhealthy, found.drained) == ((two,), ("b",), ("b",), ("b",))
