"""How a real kubelet is started, without starting one: settings by version, arguments, folders it cannot have."""

from pathlib import Path

import pytest
import yaml

from tests.e2e.rig.realkubelet import RealKubelet, config


@pytest.mark.parametrize(("version", "knows"), [("1.30.14", False), ("1.31.0", True), ("1.36.3", True)])
def test_a_version_gets_no_setting_that_it_does_not_know(tmp_path: Path, version: str, knows: bool) -> None:
    text = config.configuration(
        version=version, folder=tmp_path, runtime_socket=tmp_path / "cri.sock", status_tick_seconds=1.5, gates={}
    )
    settings = yaml.safe_load(text)
    assert ("failCgroupV1" in settings) is knows
    assert settings["nodeStatusUpdateFrequency"] == "1.5s"
    assert settings["enableServer"] is False, "it opens no port"


def test_the_command_becomes_the_kubelet_with_its_own_plugin_directory(tmp_path: Path) -> None:
    words = config.command(
        kubelet=Path("/bin/kubelet"),
        node_name="node-a",
        folder=tmp_path,
        root=tmp_path / "kubelet",
        plugin_dir=tmp_path / "kubelet" / "device-plugins",
        labels={"b": "2", "a": "1"},
        taints=("k=v:NoSchedule",),
    )
    assert words[1:4] == ("-m", "sh", "-c")
    assert words[6:9] == tuple(str(tmp_path / name) for name in ("kubelet/device-plugins", "kernel", "empty"))
    assert words[9] == "/bin/kubelet"
    assert {"--node-labels=a=1,b=2", "--register-with-taints=k=v:NoSchedule"} <= set(words)


def test_a_folder_that_the_kubelet_would_not_see_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="hidden from the kubelet"):
        RealKubelet(
            "node-a", Path("/var/lib/x"), kubelet=tmp_path, version="1.36.3", runtime=tmp_path, kubeconfig="unused"
        )


def test_what_is_on_disk_before_the_start(tmp_path: Path) -> None:
    made = RealKubelet(
        "node-a", tmp_path, kubelet=tmp_path / "k", version="1.36.3", runtime=tmp_path / "r", kubeconfig="secret"
    )
    kubeconfig = tmp_path / "kubeconfig"
    assert (kubeconfig.read_text(), kubeconfig.stat().st_mode & 0o777) == ("secret", 0o600)
    assert made.paths.plugin_dir.is_dir()
    assert (tmp_path / "kernel" / "vm" / "overcommit_memory").read_text() == "1\n"
    assert made.pid is None
    made.use("another")
    assert kubeconfig.read_text() == "another"
