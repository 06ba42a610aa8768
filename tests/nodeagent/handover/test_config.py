"""The files between agent and plugin: what is written is read back, what is bad is a value with a reason."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.handover.config import (
    Allocation,
    Device,
    DeviceKind,
    Loaded,
    PluginConfig,
    PluginFiles,
    Problem,
    read_config,
    read_ledger,
    read_loaded,
    write_config,
    write_ledger,
    write_loaded,
)
from nodeagent.handover.files import Unreadable, replace_file
from nodeagent.handover.seen_free import SeenFree, write_seen_free

MIG = Device(id="MIG-1", resource="nvidia.com/mig-1g.10gb", gpu="GPU-a", kind=DeviceKind.MIG, memory_mib=9728)
MPS = Device(
    id="GPU-b::10gb::0",
    resource="nvidia.com/gpu-10gb",
    gpu="GPU-b",
    kind=DeviceKind.MPS,
    memory_mib=9536,
    thread_percent=10,
)
WHOLE = Device(id="GPU-c", resource="nvidia.com/gpu", gpu="GPU-c", kind=DeviceKind.WHOLE)
CONFIG = PluginConfig.of([WHOLE, MPS, MIG], ["MIG-9"])


@pytest.fixture
def files(tmp_path: Path) -> PluginFiles:
    return PluginFiles(tmp_path / "state")


def test_config_is_read_back_as_written(files: PluginFiles) -> None:
    write_config(files, CONFIG)
    assert read_config(files) == CONFIG
    written = json.loads(files.config.read_text())
    assert written["version"] == 1
    assert len(written["hash"]) == 12
    assert written["withdrawn"] == ["MIG-9"]
    assert {
        "id": "GPU-b::10gb::0",
        "resource": "nvidia.com/gpu-10gb",
        "gpu": "GPU-b",
        "kind": "mps",
        "memoryMiB": 9536,
        "threadPercent": 10,
        "mergeable": False,
    } in written["devices"]
    assert [entry.name for entry in files.directory.iterdir()] == ["config.json"]


def test_no_file_is_none_and_not_an_error(files: PluginFiles) -> None:
    assert (read_config(files), read_loaded(files), read_ledger(files)) == (None, None, None)


def test_withdrawn_ids_are_not_advertised() -> None:
    config = PluginConfig.of([MIG, WHOLE], ["MIG-1"])
    assert config.advertised() == (WHOLE,)
    assert config.hash != PluginConfig.of([MIG, WHOLE]).hash


def test_unhealthy_ids_are_listed_and_no_pod_gets_them(files: PluginFiles) -> None:
    config = PluginConfig.of([MIG, WHOLE, MPS], ["MIG-1"], ["GPU-c", "MIG-1"])
    write_config(files, config)

    assert read_config(files) == config
    assert config.advertised() == (WHOLE, MPS)
    assert config.healthy() == (MPS,)
    assert config.hash != PluginConfig.of([MIG, WHOLE, MPS], ["MIG-1"]).hash


@pytest.mark.parametrize(
    ("written", "now", "unhealthy"),
    [
        pytest.param("one", "two", ("GPU-c", "MIG-1"), id="MIG instances are gone, slices and whole GPUs are not"),
        pytest.param("one", "one", ("GPU-c",), id="this boot"),
        pytest.param("", "two", ("GPU-c",), id="an agent that does not write it"),
        pytest.param("one", "", ("GPU-c",), id="a kernel that does not provide it"),
    ],
)
def test_mig_devices_of_another_boot_are_unhealthy(
    files: PluginFiles, written: str, now: str, unhealthy: tuple[str, ...]
) -> None:
    config = PluginConfig.of([MIG, WHOLE, MPS], unhealthy=["GPU-c"], boot_id=written)
    write_config(files, config)
    found = read_config(files)

    assert isinstance(found, PluginConfig)
    assert found == config
    assert found.in_boot(now).unhealthy == unhealthy
    occupied = replace(found, occupied=(WHOLE.id,)).in_boot(now).occupied
    assert occupied == (() if (written, now) == ("one", "two") else (WHOLE.id,)), "no process outlives the boot"
    assert found.hash == PluginConfig.of([MIG, WHOLE, MPS], unhealthy=["GPU-c"]).hash


def test_what_is_drained_and_for_which_kubelet_changes_the_hash(tmp_path: Path) -> None:
    files, plain = PluginFiles(tmp_path), PluginConfig.of([MIG, WHOLE])
    drained = replace(plain, drained=("MIG-1",), kubelet=(1, 2))
    assert len({plain.hash, drained.hash, replace(drained, kubelet=(1, 3)).hash}) == 3
    write_config(files, drained)
    assert read_config(files) == drained


@given(st.permutations([MIG, MPS, WHOLE]), st.permutations(["x", "y"]))
def test_hash_does_not_depend_on_the_order(devices: list[Device], withdrawn: list[str]) -> None:
    assert PluginConfig.of(devices, withdrawn).hash == PluginConfig.of([MIG, MPS, WHOLE], ["x", "y"]).hash


def spoil(**changes: Any) -> dict[str, Any]:
    device = {
        "id": "MIG-1",
        "resource": "nvidia.com/mig-1g.10gb",
        "gpu": "GPU-a",
        "kind": "mig",
        "memoryMiB": 1,
        "threadPercent": None,
    }
    return {"version": 1, "hash": "", "withdrawn": [], "devices": [{**device, **changes}]}


BAD = [
    ("{", "Invalid JSON"),
    ("null", "Input should be an object"),
    ("[]", "Input should be an object"),
    ({**spoil(), "version": 2}, "version is 2: Input should be 1"),
    ({"version": 1, "hash": "", "withdrawn": []}, "devices: Field required"),
    ({**spoil(), "withdrawn": [3]}, "withdrawn.0 is 3: Input should be a valid string"),
    (spoil(kind="vgpu"), "devices.0.kind is 'vgpu': Input should be 'mig', 'mps' or 'whole'"),
    (spoil(id=""), "devices.0.id is '': String should have at least 1 character"),
    (spoil(id=7), "devices.0.id is 7: Input should be a valid string"),
    (spoil(memoryMiB="9728"), "devices.0.memoryMiB is '9728': Input should be a valid integer"),
    (spoil(kind="mps", memoryMiB=0), "the MPS slice MIG-1 has no memory"),
    (spoil(threadPercent=101), "devices.0.threadPercent is 101: Input should be less than or equal to 100"),
    (spoil(), "hash is '', the contents have"),
]


@pytest.mark.parametrize(("contents", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_bad_config_is_a_value_with_the_reason(files: PluginFiles, contents: object, reason: str) -> None:
    files.directory.mkdir(parents=True)
    files.config.write_text(contents if isinstance(contents, str) else json.dumps(contents))
    found = read_config(files)
    assert isinstance(found, Unreadable)
    assert reason in str(found)


def test_same_id_twice_is_refused(files: PluginFiles) -> None:
    write_config(files, PluginConfig.of([MIG, Device(id="MIG-1", resource="r/x", gpu="g", kind=DeviceKind.MIG)]))
    assert "MIG-1 is listed twice" in str(read_config(files))


def test_loaded_and_ledger_are_read_back(files: PluginFiles) -> None:
    loaded = Loaded(
        hash=CONFIG.hash,
        boot_token="b",
        registered={"nvidia.com/gpu": True, "nvidia.com/gpu-10gb": False},
        mps_root="/run/mps",
        errors=(Problem(message="no daemon", gpu="GPU-b"), Problem(message="whole file")),
    )
    write_loaded(files, loaded)
    assert read_loaded(files) == loaded
    assert json.loads(files.loaded.read_text())["errors"] == [
        {"gpu": "GPU-b", "message": "no daemon"},
        {"message": "whole file"},
    ]
    ledger = (Allocation(id="a", resource="r/x", at=1.0), Allocation(id="b", resource="r/x", at=2.25))
    write_ledger(files, reversed(ledger))
    assert read_ledger(files) == ledger


@pytest.mark.parametrize("text", ['{"version": 1, "allocations": [{"id": 1}]}', '{"version": 1, "allocations": [3]}'])
def test_bad_ledger_is_a_value(files: PluginFiles, text: str) -> None:
    files.directory.mkdir(parents=True)
    files.ledger.write_text(text)
    assert isinstance(read_ledger(files), Unreadable)


def test_what_names_pods_is_for_root_alone(tmp_path: Path) -> None:
    write_config(PluginFiles(tmp_path), PluginConfig(devices=()))
    replace_file(tmp_path / "gpuplan.yaml", b"for every runtime")
    written = PluginFiles(tmp_path).config, tmp_path / "gpuplan.yaml"
    assert [path.stat().st_mode & 0o777 for path in written] == [0o600, 0o644]


def test_equal_values_are_the_same_bytes(files: PluginFiles) -> None:
    written = set()
    for order in ("ab", "ba"):
        write_seen_free(files, SeenFree(allocations=dict.fromkeys(order, 1.0), alone=dict.fromkeys(order, ("u", 1.0))))
        written.add(files.seen_free.read_bytes())
    assert len(written) == 1


@pytest.mark.parametrize("text", ["\ud83d", "a\udcff", "ü\u2028", "\U0001f600"])
def test_a_text_is_read_back_or_not_written(files: PluginFiles, text: str) -> None:
    """A file that its own reader refuses would be a lost one."""
    loaded = Loaded(hash="", boot_token="t", registered={}, mps_root="/m", errors=(Problem(message=text),))
    earlier = Loaded(hash="", boot_token="t", registered={}, mps_root="/m")
    write_loaded(files, earlier)
    with contextlib.suppress(UnicodeEncodeError):
        write_loaded(files, loaded)
        earlier = loaded
    assert read_loaded(files) == earlier
