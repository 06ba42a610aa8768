"""The specification on disk follows the devices, and what it does not describe is named with the reason."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.cdi.publisher import Published
from nodeagent.handover.cdi import FILE_NAME, named_devices, qualified_name
from nodeagent.handover.files import Unreadable
from nodeagent.hardware.driver import ObservedGpu
from sandbox import cdi as runtime
from tests.builders.observed import instance
from tests.nodeagent.cdi.node import GPU, MIG, MPS, VERSION, WHOLE, CdiNode


def test_container_gets_exactly_the_nodes_of_its_device(node: CdiNode) -> None:
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


def test_file_is_not_written_again_while_nothing_changes(node: CdiNode) -> None:
    node.publish(MIG)
    before = (node.cdi / FILE_NAME).stat()
    node.restart()
    node.publish(MIG)
    assert (node.cdi / FILE_NAME).stat().st_ino == before.st_ino


def test_numbers_that_moved_are_written_before_the_next_container(node: CdiNode) -> None:
    node.publish(MIG)
    for old in (node.proc / "driver/nvidia/capabilities").rglob("access"):
        old.unlink()
    node.capability("gpu3/mig/gi1", 417)
    node.capability("gpu3/mig/gi1/ci0", 418)
    assert node.publish(MIG, gpu=replace(GPU, minor=3)) == Published()
    assert {"/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap417", "/dev/nvidia-caps/nvidia-cap418"} < set(
        node.nodes("MIG-a")
    )


def test_upgraded_driver_withdraws_everything_until_its_files_are_known(node: CdiNode) -> None:
    node.publish(MIG)
    found = node.publish(MIG, version="595.7.8")
    assert "management.nvidia.com-gpu.yaml is for driver 580.1.2" in found.problem
    assert found.missing == {"MIG-a": found.problem}
    assert not (node.cdi / FILE_NAME).exists()
    node.upgrade("595.7.8")
    assert node.publish(MIG, version="595.7.8") == Published()
    mounted = {target for target, _, _ in runtime.inject([node.cdi], [qualified_name("MIG-a")]).mounts}
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so.595.7.8" in mounted


def test_file_stays_for_running_containers_while_the_version_is_not_known(node: CdiNode) -> None:
    """A new agent starts, and the driver answers everything but its version."""
    node.publish(MIG)
    before = node.nodes("MIG-a")

    node.restart()

    assert "are not known" in node.publish(MIG, version="").missing["MIG-a"]
    assert node.nodes("MIG-a") == before


def test_driver_files_that_nvidia_takes_away_for_a_moment_are_kept(node: CdiNode) -> None:
    node.publish(MIG)
    node.toolkit.unlink()
    assert node.publish(MIG, WHOLE) == Published()
    node.restart()
    assert node.publish(MIG, WHOLE) == Published()
    node.publish()
    assert not (node.cdi / FILE_NAME).exists()
    assert node.publish(MIG) == Published(), "the file was gone with its last device"


def test_device_without_its_numbers_is_left_out_and_the_others_are_not(node: CdiNode) -> None:
    (node.proc / "driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access").unlink()
    found = node.publish(MIG, WHOLE)
    assert list(found.missing) == ["MIG-a"]
    assert found.problem == ""
    assert node.nodes("GPU-1")
    with pytest.raises(runtime.CdiError, match="unresolvable CDI devices"):
        node.nodes("MIG-a")


def test_entry_is_gone_before_its_instance_is_destroyed(node: CdiNode) -> None:
    node.publish(MIG, WHOLE)
    assert node.publisher.forget(["MIG-a"]) == ""
    assert named_devices(node.cdi) == frozenset({"GPU-1"})
    assert node.publisher.forget(["GPU-1"]) == ""
    assert named_devices(node.cdi) == frozenset()


def test_gpu_that_cannot_be_read_keeps_its_entries(node: CdiNode) -> None:
    node.publish(MIG)
    before = node.nodes("MIG-a")
    lost = ObservedGpu(index=0, uuid="GPU-1", problem="GPU is lost")
    assert node.publish(MIG, WHOLE, gpu=lost).missing == {"GPU-1": "GPU is lost"}
    assert node.nodes("MIG-a") == before


@pytest.mark.parametrize("reloaded", ["other GPU at its number", "other major"])
def test_gpu_that_cannot_be_read_never_keeps_numbers_of_another_device(node: CdiNode, reloaded: str) -> None:
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


def test_files_without_a_driver_are_not_those_of_an_unknown_one(node: CdiNode) -> None:
    node.toolkit.write_text(node.toolkit.read_text().replace("libcuda", "libother"))
    assert "names no libcuda.so" in node.publish(WHOLE, version="").problem


def test_names_are_read_again_when_the_file_changes(node: CdiNode) -> None:
    assert named_devices(node.cdi) == frozenset()
    node.publish(MIG)
    assert named_devices(node.cdi) == frozenset({"MIG-a"})
    (node.cdi / FILE_NAME).write_text("half")
    assert isinstance(named_devices(node.cdi), Unreadable)
    node.publish(MIG, WHOLE)
    assert named_devices(node.cdi) == frozenset({"MIG-a", "GPU-1"})


@pytest.mark.parametrize("break_it", [lambda path: path.write_text("?"), lambda path: (path.unlink(), path.mkdir())])
def test_capability_file_that_cannot_be_read_concerns_its_gpu_only(
    node: CdiNode, break_it: Callable[[Path], object]
) -> None:
    other = replace(GPU, index=1, uuid="GPU-2", minor=1, instances=(instance(number=1, uuid="MIG-b"),))
    on_other = replace(MIG, id="MIG-b", gpu="GPU-2")
    for where, minor in (("gpu1/mig/gi1", 147), ("gpu1/mig/gi1/ci0", 148)):
        node.capability(where, minor)
    break_it(node.proc / "driver/nvidia/capabilities/gpu0/mig/gi1/access")
    found = node.publisher.publish([(MIG, GPU), (on_other, other)], driver_version=VERSION, mps_root=MPS)
    assert list(found.missing) == ["MIG-a"]
    assert "capabilities/gpu0" in found.unseen
    assert "/dev/nvidia-caps/nvidia-cap147" in node.nodes("MIG-b")
