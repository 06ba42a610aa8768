"""The plugin's config: what may replace what, and when it counts as loaded."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.advertise.advertiser import Advertiser, counts, render
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
    write_loaded(files, Loaded(hash=loaded.hash, loaded_at=1.0, boot_token="t", registered={}))


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
    advertiser = Advertiser(files)
    first = config("a", "b")
    assert advertiser.advertise(first, in_force=False, overdue=False)

    assert advertiser.advertise(then, in_force=False, overdue=False) is written
    assert advertiser.advertise(then, in_force=True, overdue=False)
    assert advertiser.advertise(first, in_force=True, overdue=False)
    assert advertiser.advertise(then, in_force=False, overdue=True)
    assert Advertiser(files).config == then


def test_it_is_in_force_when_the_plugin_loaded_it_after_it_was_written(files: PluginFiles) -> None:
    advertiser = Advertiser(files)
    first, second = config("a"), config("a", "b")
    assert not advertiser.in_force(None)
    advertiser.advertise(first, in_force=False, overdue=False)
    load(files, first)
    assert advertiser.in_force(advertiser.loaded())

    advertiser.advertise(second, in_force=True, overdue=False)
    assert not advertiser.in_force(advertiser.loaded())

    # The same text again: an older confirmation does not count for it.
    advertiser.advertise(first, in_force=False, overdue=True)
    later = files.loaded.stat().st_mtime_ns + 1_000_000
    os.utime(files.config, ns=(later, later))
    assert not advertiser.in_force(advertiser.loaded())


def test_an_answer_that_is_replaced_while_it_is_read_counts_with_its_own_time(files: PluginFiles) -> None:
    """The plugin has loaded `first`, then `second`, and the agent has written `first` again in between."""
    advertiser = Advertiser(files)
    first, second = config("a"), config("a", "b")
    advertiser.advertise(first, in_force=False, overdue=False)
    load(files, first)
    before = advertiser.loaded()

    advertiser.advertise(second, in_force=True, overdue=False)
    advertiser.advertise(first, in_force=False, overdue=True)
    load(files, second)

    assert not advertiser.in_force(before)


def test_an_unreadable_config_is_written_again(files: PluginFiles) -> None:
    files.directory.mkdir()
    files.config.write_text("{")
    advertiser = Advertiser(files)

    assert advertiser.advertise(PluginConfig(), in_force=False, overdue=False)
    assert Advertiser(files).config == PluginConfig()


def test_an_empty_config_is_written_once(files: PluginFiles) -> None:
    advertiser = Advertiser(files)
    assert advertiser.advertise(PluginConfig(), in_force=False, overdue=False)
    before = files.config.stat().st_mtime_ns

    assert Advertiser(files).advertise(PluginConfig(), in_force=False, overdue=False)
    assert files.config.stat().st_mtime_ns == before


def test_counts_keep_the_resource_of_which_all_is_withdrawn(files: PluginFiles) -> None:
    write_config(files, config("a", withdrawn=("b",)))

    assert counts(config("a", withdrawn=("b",))) == {"nvidia.com/gpu-10gb": 1}
    assert counts(config(withdrawn=("b",))) == {"nvidia.com/gpu-10gb": 0}


def test_a_removed_config_is_written_again(files: PluginFiles) -> None:
    advertiser = Advertiser(files)
    advertiser.advertise(config("a"), in_force=False, overdue=False)
    files.config.unlink()

    assert advertiser.advertise(config("a"), in_force=False, overdue=False)

    assert Advertiser(files).config == config("a")


def test_a_config_from_the_future_is_written_again(files: PluginFiles) -> None:
    """The clock was set back: no confirmation would ever be younger than it."""
    Advertiser(files).advertise(config("a"), in_force=False, overdue=False)
    os.utime(files.config, (time.time() + 3600, time.time() + 3600))
    advertiser = Advertiser(files)
    load(files, config("a"))
    assert not advertiser.in_force(advertiser.loaded())

    advertiser.advertise(config("a"), in_force=False, overdue=False)
    load(files, config("a"))

    assert advertiser.in_force(advertiser.loaded())


def test_a_confirmation_that_cannot_be_read_is_logged_once(
    files: PluginFiles, caplog: pytest.LogCaptureFixture
) -> None:
    advertiser = Advertiser(files)
    advertiser.advertise(config("a"), in_force=False, overdue=False)
    files.loaded.write_text("{")

    assert [advertiser.loaded() for _ in range(3)] == [None] * 3
    assert len([line for line in caplog.messages if "loaded.json" in line]) == 1

    load(files, config("a"))
    assert advertiser.loaded() is not None
    files.loaded.write_text("{")
    assert advertiser.loaded() is None
    assert len([line for line in caplog.messages if "loaded.json" in line]) == 2


def test_the_same_config_is_written_again_in_another_boot(files: PluginFiles) -> None:
    Advertiser(files).advertise(replace(config("a"), boot_id="one"), in_force=False, overdue=False)
    advertiser = Advertiser(files, boot_id="two")
    load(files, config("a"))
    assert advertiser.in_force(advertiser.loaded())

    advertiser.advertise(render([], advertiser.config, boot_id="two"), in_force=True, overdue=False)

    found = read_config(files)
    assert isinstance(found, PluginConfig)
    assert found.boot_id == "two"
