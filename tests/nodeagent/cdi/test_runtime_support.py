"""Which runtimes put CDI devices into containers."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from nodeagent.cdi.runtime_support import read_containerd, why_no_cdi

NONE: Mapping[str, bool] = {}


@pytest.mark.parametrize(
    ("runtime", "kubelet", "containerd", "reason"),
    [
        ("containerd://2.2.9", "v1.36.3", NONE, ""),
        ("containerd://2.0.0-rc.1", "v1.30.14", NONE, ""),
        ("containerd://2.1.4-k3s2", "v1.33.1+k3s1", NONE, ""),
        ("containerd://2.2.9", "v1.36.3", {"/c": False}, "set enable_cdi = true in its /c"),
        ("containerd://2.2.9", "v1.36.3", {"/c": False, "/d": True}, ""),
        ("containerd://1.7.28", "v1.30.14", NONE, "off by default, and no file that the agent sees"),
        ("containerd://1.7.28", "v1.30.14", {"/c": True}, ""),
        ("containerd://1.7.28", "v1.30.14", {"/c": True, "/d": False}, "set enable_cdi = true in its /d"),
        ("containerd://1.6.20", "v1.30.14", {"/c": True}, "containerd 1.6.20 drops CDI devices without an error"),
        ("cri-o://1.30.2", "v1.30.14", NONE, ""),
        ("cri-o://1.27.0", "v1.30.14", NONE, "upgrade it to 1.28"),
        ("docker://27.1.1", "v1.30.14", NONE, "cri-dockerd may not pass CDI devices on"),
        ("containerd://2.2.9", "v1.28.4", NONE, "kubelet v1.28.4 does not pass CDI devices on"),
        ("sandbox://1", "v1.36.3", NONE, ""),
        ("", "", NONE, ""),
    ],
)
def test_runtime(runtime: str, kubelet: str, containerd: Mapping[str, bool], reason: str) -> None:
    found = why_no_cdi(runtime, kubelet, containerd)
    assert (reason in found) if reason else found == ""
    assert not reason or "deviceListStrategy: envvar" in found


def test_containerds_files_are_read_in_its_order(tmp_path: Path) -> None:
    assert read_containerd(tmp_path) == {}
    (tmp_path / "config.toml").write_text('version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n')
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "10-other.toml").write_text("version = 2\n")
    (folder / "20-broken.toml").write_text("enable_cdi = tr")
    (folder / "99-nvidia.toml").write_text('[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = true\n')
    assert list(read_containerd(tmp_path).items()) == [
        ("config.toml", False),
        ("conf.d/99-nvidia.toml", True),
    ]
