"""The specification on disk follows the devices, and what it does not describe is named with the reason."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.cdi.publisher import Published, SpecificationPublisher
from nodeagent.handover.cdi import FILE_NAME, NamedDevices, qualified_name
from nodeagent.handover.config import Device, DeviceKind
from nodeagent.handover.files import Unreadable, replace_file
from nodeagent.hardware.driver import ComputeInstance, GpuInstance, ObservedGpu
from partitioning.layouts import Instance
from sandbox import cdi as runtime
from sandbox.driver import toolkit

VERSION = "580.1.2"
MPS = Path("/run/mps")


class Node:
    """A node's folders, with NVIDIA's toolkit and two MIG instances on GPU 0."""

    def __init__(self, root: Path) -> None:
        self.root, self.cdi, self.proc = root, root / "cdi", root / "proc"
        (self.proc / "driver/nvidia/capabilities").mkdir(parents=True)
        (self.proc / "devices").write_text("Character devices:\n195 nvidia\n510 nvidia-uvm\n511 nvidia-caps\n")
        self.upgrade(VERSION)
        self.capability("gpu0/mig/gi1", 12)
        self.capability("gpu0/mig/gi1/ci0", 13)
        self.publisher = self.restart()

    def restart(self) -> SpecificationPublisher:
        self.publisher = SpecificationPublisher(self.cdi, proc=self.proc, folders=(self.root / "etc", self.cdi))
        return self.publisher

    def upgrade(self, version: str) -> None:
        self.toolkit = toolkit.install(self.root / "driver", self.cdi, version)

    def capability(self, where: str, minor: int) -> None:
        path = self.proc / "driver/nvidia/capabilities" / where / "access"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"DeviceFileMinor: {minor}\n")

    def publish(self, *devices: Device, gpu: ObservedGpu | None = None, version: str = VERSION) -> Published:
        listed = [(device, gpu or GPU) for device in devices]
        return self.publisher.publish(listed, driver_version=version, mps_root=MPS)

    def nodes(self, device_id: str) -> dict[str, tuple[int, int]]:
        """What a container runtime makes, by path."""
        got = runtime.inject([self.root / "etc", self.cdi], [qualified_name(device_id)])
        return {node.path: (node.major, node.minor) for node in got.nodes}


INSTANCE = GpuInstance(
    id=1,
    placed=Instance(profile="1g.10gb", start=0, size=1),
    compute_slices=1,
    compute=(ComputeInstance(id=0, slices=1, uuid="MIG-a"),),
)
OTHER_COMPUTE = ComputeInstance(id=0, slices=1, uuid="MIG-b")
GPU = ObservedGpu(index=0, uuid="GPU-1", minor=0, instances=(INSTANCE,))
MIG = Device(id="MIG-a", resource="nvidia.com/mig-1g.10gb", gpu="GPU-1", kind=DeviceKind.MIG)
WHOLE = Device(id="GPU-1", resource="nvidia.com/gpu", gpu="GPU-1", kind=DeviceKind.WHOLE)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_container_gets_exactly_the_nodes_of_its_device(node: Node) -> None:
    assert node.publish(MIG, WHOLE) == Published()
    assert node.nodes("MIG-a") == {
        "/dev/nvidia0": (195, 0),
        "/dev/nvidia-caps/nvidia-cap12": (511, 12),
        "/dev/nvidia-caps/nvidia-cap13": (511, 13),
        "/dev/nvidiactl": (195, 255),
        "/dev/nvidia-modeset": (195, 254),
        "/dev/nvidia-uvm": (510, 0),
        "/dev/nvidia-uvm-tools": (510, 1),
    }
    assert not any("caps" in path for path in node.nodes("GPU-1"))


def test_file_is_not_written_again_while_nothing_changes(node: Node) -> None:
    node.publish(MIG)
    before = (node.cdi / FILE_NAME).stat()
    node.restart()
    node.publish(MIG)
    assert (node.cdi / FILE_NAME).stat().st_ino == before.st_ino


def test_numbers_that_moved_are_written_before_the_next_container(node: Node) -> None:
    node.publish(MIG)
    for old in (node.proc / "driver/nvidia/capabilities").rglob("access"):
        old.unlink()
    node.capability("gpu3/mig/gi1", 417)
    node.capability("gpu3/mig/gi1/ci0", 418)
    assert node.publish(MIG, gpu=replace(GPU, minor=3)) == Published()
    assert {"/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap417", "/dev/nvidia-caps/nvidia-cap418"} < set(
        node.nodes("MIG-a")
    )


def test_upgraded_driver_withdraws_everything_until_its_files_are_known(node: Node) -> None:
    node.publish(MIG)
    found = node.publish(MIG, version="595.7.8")
    assert "management.nvidia.com-gpu.yaml is for driver 580.1.2" in found.problem
    assert found.missing == {"MIG-a": found.problem}
    assert not (node.cdi / FILE_NAME).exists()
    node.upgrade("595.7.8")
    assert node.publish(MIG, version="595.7.8") == Published()
    mounted = {target for target, _, _ in runtime.inject([node.cdi], [qualified_name("MIG-a")]).mounts}
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so.595.7.8" in mounted


def test_driver_files_that_nvidia_takes_away_for_a_moment_are_kept(node: Node) -> None:
    node.publish(MIG)
    node.toolkit.unlink()
    assert node.publish(MIG, WHOLE) == Published()
    node.restart()
    assert node.publish(MIG, WHOLE) == Published()
    node.publish()
    assert not (node.cdi / FILE_NAME).exists()
    assert node.publish(MIG) == Published(), "the file was gone with its last device"


def test_device_without_its_numbers_is_left_out_and_the_others_are_not(node: Node) -> None:
    (node.proc / "driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access").unlink()
    found = node.publish(MIG, WHOLE)
    assert list(found.missing) == ["MIG-a"]
    assert found.problem == ""
    assert node.nodes("GPU-1")
    with pytest.raises(runtime.CdiError, match="unresolvable CDI devices"):
        node.nodes("MIG-a")


def test_entry_is_gone_before_its_instance_is_destroyed(node: Node) -> None:
    node.publish(MIG, WHOLE)
    assert node.publisher.forget(["MIG-a"]) == ""
    assert NamedDevices(node.cdi).names() == frozenset({"GPU-1"})
    assert node.publisher.forget(["GPU-1"]) == ""
    assert NamedDevices(node.cdi).names() == frozenset()


def test_gpu_that_cannot_be_read_keeps_its_entries(node: Node) -> None:
    node.publish(MIG)
    before = node.nodes("MIG-a")
    lost = ObservedGpu(index=0, uuid="GPU-1", problem="GPU is lost")
    assert node.publish(MIG, WHOLE, gpu=lost).missing == {"GPU-1": "GPU is lost"}
    assert node.nodes("MIG-a") == before


@pytest.mark.parametrize("reloaded", ["other GPU at its number", "other major"])
def test_gpu_that_cannot_be_read_never_keeps_numbers_of_another_device(node: Node, reloaded: str) -> None:
    """After the driver was loaded again without it, another GPU may have its number."""
    node.publish(MIG)
    lost = ObservedGpu(index=0, uuid="GPU-1", problem="GPU is lost")
    other = ObservedGpu(index=1, uuid="GPU-2", minor=1)
    if reloaded == "other major":
        (node.proc / "devices").write_text("Character devices:\n195 nvidia\n510 nvidia-uvm\n509 nvidia-caps\n")
    else:
        other = replace(other, minor=0)
    alone = replace(WHOLE, id="GPU-2", gpu="GPU-2")
    found = node.publisher.publish([(MIG, lost), (alone, other)], driver_version=VERSION, mps_root=MPS)
    assert found.missing == {"MIG-a": "GPU is lost"}
    assert node.nodes("GPU-2")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"devices": 1}',
        b"[]",
        b'{"cdiVersion": "0.5.0"}',
        b'{"cdiVersion": "x", "containerEdits": {}, "devices": []}',
    ],
)
def test_half_written_file_is_written_anew(node: Node, content: bytes) -> None:
    node.publish(MIG)
    (node.cdi / FILE_NAME).write_bytes(content)
    assert node.publisher.forget(["MIG-a"]) == ""
    assert node.publish(MIG) == Published()
    assert node.nodes("MIG-a")


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document | {"cdiVersion": 7},
        lambda document: document | {"devices": [{"name": n, "containerEdits": []} for n in ("MIG-a", "GPU-1")]},
        lambda document: document | {"containerEdits": []},
    ],
)
def test_file_of_another_form_is_neither_kept_nor_trusted(
    node: Node, change: Callable[[dict[str, object]], dict[str, object]]
) -> None:
    node.publish(MIG, WHOLE)
    path = node.cdi / FILE_NAME
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    node.toolkit.unlink()  # the driver's files would be taken from ours
    assert node.publisher.forget(["MIG-a"]) == ""
    assert "MIG-a" not in NamedDevices(node.cdi).names()  # type: ignore[operator]
    node.restart()
    node.publish(WHOLE, gpu=ObservedGpu(index=0, uuid="GPU-1", problem="GPU is lost"))
    if path.exists():
        runtime.load(path)


def test_file_that_cannot_be_read_or_removed_keeps_instances_alive(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> str:
        raise OSError(errno.EIO, "Input/output error")

    node.publish(MIG)
    monkeypatch.setattr(Path, "read_text", broken)
    monkeypatch.setattr(Path, "unlink", broken)
    assert "cannot be written" in node.publisher.forget(["MIG-a"])
    assert node.publisher.forget([]) == ""


@pytest.mark.parametrize(("owner", "step"), [(Path, "open"), (os, "fsync"), (Path, "replace")])
def test_crash_while_writing_leaves_the_old_file(
    node: Node, owner: object, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    node.publish(WHOLE)
    with monkeypatch.context() as patched:
        patched.setattr(owner, step, killed)
        with pytest.raises(KilledError):
            replace_file(node.cdi / FILE_NAME, b"new")
    assert NamedDevices(node.cdi).names() == frozenset({"GPU-1"})
    runtime.load(node.cdi / FILE_NAME)
    node.restart()
    assert node.publish(WHOLE, MIG) == Published()


def test_folder_that_is_missing_is_made(node: Node) -> None:
    folder = node.root / "run" / "cdi"
    node.publisher = SpecificationPublisher(folder, proc=node.proc, folders=(node.cdi, folder))
    assert node.publish(MIG) == Published()
    assert (folder / FILE_NAME).exists()


def test_folder_that_cannot_be_written_advertises_only_what_is_there(node: Node) -> None:
    slices = [replace(WHOLE, id=f"GPU-1::10gb::{number}") for number in range(3)]
    node.publish(*slices[:2])
    (node.cdi / f".{FILE_NAME}.tmp").mkdir()  # opening it for writing fails, for root as well
    found = node.publish(*slices)
    assert list(found.missing) == [slices[2].id]
    assert "cannot be written" in found.problem
    assert "cannot be written" in node.publisher.forget([slices[0].id])
    assert node.publish(*slices[:2]) == Published()


def test_second_writer_is_noticed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(path: Path, content: bytes) -> None:
        replace_file(path, content.replace(b"MIG-a", b"MIG-z"))

    monkeypatch.setattr("nodeagent.cdi.publisher.replace_file", overtaken)
    found = node.publish(MIG)
    assert "another program writes the CDI specification" in found.missing["MIG-a"]


def test_second_file_of_our_kind_is_named(node: Node) -> None:
    node.publish(MIG)
    copy = node.cdi / "copy.json"
    copy.write_bytes((node.cdi / FILE_NAME).read_bytes())
    with pytest.raises(runtime.CdiError):
        node.nodes("MIG-a")
    assert f"{copy} describes devices of gpuplan.dev/gpu too" in node.publish(MIG).missing["MIG-a"]
    copy.unlink()
    assert node.publish(MIG) == Published()
    assert node.nodes("MIG-a")


def test_files_without_a_driver_are_not_those_of_an_unknown_one(node: Node) -> None:
    node.toolkit.write_text(node.toolkit.read_text().replace("libcuda", "libother"))
    assert "names no libcuda.so" in node.publish(WHOLE, version="").problem


def test_names_are_read_again_when_the_file_changes(node: Node) -> None:
    named = NamedDevices(node.cdi)
    assert named.names() == frozenset()
    node.publish(MIG)
    assert named.names() == frozenset({"MIG-a"})
    (node.cdi / FILE_NAME).write_text("half")
    assert isinstance(named.names(), Unreadable)
    node.publish(MIG, WHOLE)
    assert named.names() == frozenset({"MIG-a", "GPU-1"})


@pytest.mark.parametrize("break_it", [lambda path: path.write_text("?"), lambda path: (path.unlink(), path.mkdir())])
def test_capability_file_that_cannot_be_read_concerns_its_gpu_only(
    node: Node, break_it: Callable[[Path], object]
) -> None:
    other = replace(GPU, index=1, uuid="GPU-2", minor=1, instances=(replace(INSTANCE, compute=(OTHER_COMPUTE,)),))
    on_other = replace(MIG, id="MIG-b", gpu="GPU-2")
    for where, minor in (("gpu1/mig/gi1", 147), ("gpu1/mig/gi1/ci0", 148)):
        node.capability(where, minor)
    break_it(node.proc / "driver/nvidia/capabilities/gpu0/mig/gi1/access")
    found = node.publisher.publish([(MIG, GPU), (on_other, other)], driver_version=VERSION, mps_root=MPS)
    assert list(found.missing) == ["MIG-a"]
    assert "capabilities/gpu0" in found.unseen
    assert "/dev/nvidia-caps/nvidia-cap147" in node.nodes("MIG-b")
