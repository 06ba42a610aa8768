"""What NVIDIA's mig-manager did after a change: nodes on the host, and the specification of the operator's pods."""

import errno
import os
from pathlib import Path

import pytest
import yaml

from nodeagent.cdi.driver_files import read_document
from nodeagent.cdi.host_devices import HostDevices
from nodeagent.handover.files import replace_file
from nodeagent.hardware.driver import ObservedGpu
from sandbox.driver import toolkit
from tests.builders.observed import instance


def gpu(*ids: int) -> ObservedGpu:
    instances = tuple(instance(number=n, uuid=f"MIG-{n}") for n in ids)
    return ObservedGpu(index=0, uuid="GPU-1", minor=0, instances=instances)


class Host:
    """The host's tree below a folder, with the driver's own root where the operator puts it."""

    def __init__(self, root: Path) -> None:
        self.cdi, self.proc = root / "cdi", root / "proc"
        self.driver = "/run/nvidia/driver"
        self.dev = self.proc / "1/root" / self.driver.lstrip("/") / "dev"
        self.dev.mkdir(parents=True)
        (self.dev / "nvidiactl").touch()
        self.capabilities()
        self.file = toolkit.install(root / "files", self.cdi, "580.1.2")
        self.file.write_text(self.file.read_text().replace(f"{root / 'files'}/dev", f"{self.driver}/dev"))
        self.made: dict[str, tuple[int, int]] = {}
        self.devices = HostDevices(self.cdi, proc=self.proc, mknod=self.mknod)

    def capabilities(self, major: int = 511, **minors: int) -> None:
        (self.proc / "devices").write_text(f"Character devices:\n195 nvidia\n{major} nvidia-caps\n")
        for where, minor in minors.items():
            folder = self.proc / "driver/nvidia/capabilities/gpu0/mig" / where.replace("_", "/")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "access").write_text(f"DeviceFileMinor: {minor}\n")

    def mknod(self, path: Path, mode: int, device: int) -> None:
        assert mode & 0o777 == 0o444
        path.touch()
        self.made[path.relative_to(self.dev).as_posix()] = (os.major(device), os.minor(device))

    def listed(self) -> list[str]:
        (device,) = yaml.safe_load(self.file.read_text())["devices"]
        paths = [node["hostPath"] for node in device["containerEdits"]["deviceNodes"] if "caps" in node["path"]]
        assert [path.rpartition("cap")[2] for path in paths[:2]] == ["1", "2"], "those that the toolkit itself listed"
        return paths[2:]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_new_instance_gets_its_nodes_below_the_drivers_root_and_in_nvidias_file(host: Host) -> None:
    host.capabilities(gi1=12, gi1_ci0=13)
    assert host.devices.refresh([gpu(1)]) == ""
    assert host.made == {"nvidia-caps/nvidia-cap12": (511, 12), "nvidia-caps/nvidia-cap13": (511, 13)}
    paths = ["/run/nvidia/driver/dev/nvidia-caps/nvidia-cap12", "/run/nvidia/driver/dev/nvidia-caps/nvidia-cap13"]
    assert host.listed() == paths
    assert "libcuda.so.580.1.2" in host.file.read_text()


def test_nothing_is_done_again_until_something_changes(host: Host) -> None:
    host.capabilities(gi1=12)
    host.devices.refresh([gpu(1)])
    host.devices.refresh([gpu(1)])  # the file was changed once more, by the first one
    host.made.clear()
    before = host.file.stat().st_ino
    host.devices.refresh([gpu(1)])
    assert (host.made, host.file.stat().st_ino) == ({}, before)
    host.capabilities(gi2=21)
    host.devices.refresh([gpu(1, 2)])
    assert "nvidia-caps/nvidia-cap21" in host.made
    toolkit.install(host.cdi.parent / "files", host.cdi, "580.1.2")
    host.file.write_text(host.file.read_text().replace(f"{host.cdi.parent / 'files'}/dev", f"{host.driver}/dev"))
    host.devices.refresh([gpu(1, 2)])
    assert len(host.listed()) == 2, "the toolkit wrote its file again"


def test_host_without_the_operator_gets_nodes_in_its_own_dev(host: Host) -> None:
    host.file.unlink()
    host.dev = host.proc / "1/root/dev"
    host.dev.mkdir(parents=True)
    (host.dev / "nvidiactl").touch()
    host.capabilities(gi1=12)
    assert host.devices.refresh([gpu(1)]) == ""
    assert list(host.made) == ["nvidia-caps/nvidia-cap12"]
    assert not host.file.exists()


@pytest.mark.parametrize("gone", ["driver", "proc"])
def test_nothing_is_made_where_the_hosts_dev_is_not_visible(host: Host, gone: str) -> None:
    host.capabilities(gi1=12)
    if gone == "driver":
        (host.dev / "nvidiactl").unlink()
    else:
        (host.proc / "1").rename(host.proc / "2")
    before = host.file.read_text()
    assert host.devices.refresh([gpu(1)]) == ""
    assert (host.made, host.file.read_text()) == ({}, before)


def test_node_of_another_major_is_replaced(host: Host) -> None:
    host.capabilities(gi1=12)
    (host.dev / "nvidia-caps").mkdir()
    (host.dev / "nvidia-caps/nvidia-cap12").touch()
    host.devices.refresh([gpu(1)])
    assert host.made == {"nvidia-caps/nvidia-cap12": (511, 12)}


def test_failure_is_a_sentence_and_tried_again(host: Host) -> None:
    host.capabilities(gi1=12)
    (host.dev / "nvidia-caps").touch()  # a file where the folder should be
    assert "pods of the GPU Operator may not see new MIG instances" in host.devices.refresh([gpu(1)])
    (host.dev / "nvidia-caps").unlink()
    assert host.devices.refresh([gpu(1)]) == ""
    assert host.made


@pytest.mark.parametrize(
    "content",
    [
        "",
        "half: [",
        "devices: {}",
        "devices: [{name: all}]",
        "[]",
        "devices: 5",
        "devices: [{name: all, containerEdits: {deviceNodes: [a]}}]",
    ],
)
def test_file_of_another_form_is_left_alone(host: Host, content: str) -> None:
    host.file.write_text(content)
    host.capabilities(gi1=12)
    assert host.devices.refresh([gpu(1)]) == ""
    assert host.file.read_text() == content


def test_root_of_the_host_that_may_not_be_read_is_a_sentence(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without CAP_SYS_PTRACE, or below an AppArmor profile."""

    def refused(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    host.capabilities(gi1=12)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", refused)
        assert "Permission denied" in host.devices.refresh([gpu(1)])
    assert host.devices.refresh([gpu(1)]) == ""
    assert host.made


def test_capability_that_cannot_be_read_is_tried_again_and_the_others_are_made(host: Host) -> None:
    host.capabilities(gi1=12)
    unreadable = host.proc / "driver/nvidia/capabilities/gpu1/mig/gi2/access"
    unreadable.parent.mkdir(parents=True)
    unreadable.write_text("?")
    assert "capabilities/gpu1" in host.devices.refresh([gpu(1, 2)])
    assert set(host.made) == {"nvidia-caps/nvidia-cap12"}
    unreadable.write_text("DeviceFileMinor: 21\n")
    assert host.devices.refresh([gpu(1, 2)]) == ""
    assert "nvidia-caps/nvidia-cap21" in host.made


def test_file_that_the_toolkit_writes_meanwhile_is_not_overwritten(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a driver is upgraded: with the old text no container of the node would get the new driver's files."""
    newer = host.file.read_text().replace("580.1.2", "595.7.8")

    def overtaken(path: Path) -> object:
        document = read_document(path)
        replace_file(path, newer.encode())
        return document

    host.capabilities(gi1=12)
    with monkeypatch.context() as patched:
        patched.setattr("nodeagent.cdi.host_devices.read_document", overtaken)
        assert host.devices.refresh([gpu(1)]) == ""
    assert host.file.read_text() == newer
    assert host.devices.refresh([gpu(1)]) == ""
    assert "595.7.8" in host.file.read_text()
    assert any("nvidia-cap12" in path for path in host.listed())
