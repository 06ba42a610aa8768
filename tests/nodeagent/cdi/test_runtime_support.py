"""Which runtimes put CDI devices into containers."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from nodeagent.cdi.runtime_support import read_containerd, why_no_cdi

NONE: Mapping[str, bool | None] = {}


@pytest.mark.parametrize(
    ("runtime", "kubelet", "containerd", "reason"),
    [
        ("containerd://2.2.9", "v1.36.3", NONE, ""),
        ("containerd://2.0.0-rc.1", "v1.30.14", NONE, ""),
        ("containerd://2.1.4-k3s2", "v1.33.1+k3s1", NONE, ""),
        ("containerd://2.2.9", "v1.36.3", {"/c": False}, "set enable_cdi = true in its /c"),
        ("containerd://2.2.9", "v1.36.3", {"/c": False, "/d": True}, ""),
        ("containerd://1.7.28", "v1.30.14", NONE, "since no file that the agent sees turns it on"),
        ("containerd://1.7.28", "v1.30.14", {"/c": True}, ""),
        ("containerd://1.7.28", "v1.30.14", {"/c": True, "/d": False}, "set enable_cdi = true in its /d"),
        ("containerd://1.7.28", "v1.30.14", {"/c": True, "/d": None}, "set enable_cdi = true in its /d"),
        ("containerd://2.1.4", "v1.30.14", {"/c": True, "/d": None}, ""),
        ("containerd://2.1.4", "v1.30.14", {"/c": False, "/d": None}, "set enable_cdi = true in its /c"),
        ("containerd://2.1.4", "v1.30.14", {"/c": None}, ""),
        ("containerd://1.6.20", "v1.30.14", {"/c": True}, "containerd 1.6.20 drops CDI devices without an error"),
        ("cri-o://1.30.2", "v1.30.14", NONE, ""),
        ("cri-o://1.27.0", "v1.30.14", NONE, "upgrade it to 1.28"),
        ("docker://27.1.1", "v1.30.14", NONE, "cri-dockerd may not pass CDI devices on"),
        ("containerd://2.2.9", "v1.28.4", NONE, "kubelet v1.28.4 does not pass CDI devices on"),
        ("sandbox://1", "v1.36.3", NONE, ""),
        ("", "", NONE, ""),
    ],
)
def test_runtime(runtime: str, kubelet: str, containerd: Mapping[str, bool | None], reason: str) -> None:
    found = why_no_cdi(runtime, kubelet, containerd)
    assert (reason in found) if reason else found == ""
    assert not reason or "deviceListStrategy: envvar" in found


ETC = "/etc/containerd/config.toml"
K3S = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
OFF, ON = (f'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = {value}\n' for value in ("false", "true"))


def write(root: Path, path: str, text: str) -> None:
    """A file of the node."""
    there = root / path.lstrip("/")
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_text(text)


def test_containerds_files_are_read_in_its_order(tmp_path: Path) -> None:
    assert read_containerd(tmp_path) == {}
    write(tmp_path, ETC, f'imports = ["conf.d/*.toml"]\n{OFF}')
    write(tmp_path, "/etc/containerd/conf.d/10-other.toml", "version = 2\n")
    write(tmp_path, "/etc/containerd/conf.d/20-broken.toml", "enable_cdi = tr")
    write(tmp_path, "/etc/containerd/conf.d/99-nvidia.toml", ON)
    assert list(read_containerd(tmp_path).items()) == [
        (ETC, False),
        ("/etc/containerd/conf.d/99-nvidia.toml", True),
    ]


@pytest.mark.parametrize(
    "config",
    [
        K3S,
        "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
        "/var/snap/microk8s/current/args/containerd.toml",
    ],
)
def test_a_distributions_own_file_is_found_before_that_of_dockers_containerd(tmp_path: Path, config: str) -> None:
    write(tmp_path, ETC, OFF)
    write(tmp_path, config, ON)
    assert read_containerd(tmp_path) == {config: True}


def test_microk8s_configuration_is_found_through_its_link(tmp_path: Path) -> None:
    write(tmp_path, "/var/snap/microk8s/8136/args/containerd.toml", ON)
    (tmp_path / "var/snap/microk8s/current").symlink_to("8136")
    assert read_containerd(tmp_path) == {"/var/snap/microk8s/current/args/containerd.toml": True}


@pytest.mark.parametrize("pattern", ["config-v3.toml.d/*.toml", f"{Path(K3S).parent}/config-v3.toml.d/*.toml"])
def test_what_a_file_imports_is_read_after_it(tmp_path: Path, pattern: str) -> None:
    write(tmp_path, K3S, f'imports = ["{pattern}", 1]\n{OFF}')
    write(tmp_path, f"{Path(K3S).parent}/config-v3.toml.d/cdi.toml", ON)
    assert list(read_containerd(tmp_path).values()) == [False, True]


def test_a_file_that_is_named_is_the_only_one(tmp_path: Path) -> None:
    write(tmp_path, K3S, OFF)
    write(tmp_path, "/data/rke2/config.toml", ON)
    assert read_containerd(tmp_path, (Path("/data/rke2/config.toml"),)) == {"/data/rke2/config.toml": True}
    assert read_containerd(tmp_path, (Path("/not/there.toml"),)) == {}


MIRRORS = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".registry]\nconfig_path = "/etc/containerd/certs.d"\n'


def test_up_to_1_7_a_file_that_is_imported_replaces_the_plugins_whole_section(tmp_path: Path) -> None:
    """containerd#5837: a drop-in with the mirrors of a registry turns CDI off, and pods would run without a GPU."""
    write(tmp_path, ETC, 'imports = ["/etc/containerd/conf.d/*.toml"]\n' + ON)
    write(tmp_path, "/etc/containerd/conf.d/mirrors.toml", MIRRORS)
    found = read_containerd(tmp_path)
    assert "in its /etc/containerd/conf.d/mirrors.toml" in why_no_cdi("containerd://1.7.28", "v1.30.14", found)
    assert why_no_cdi("containerd://2.0.5", "v1.30.14", found) == ""

    write(tmp_path, "/etc/containerd/conf.d/99-nvidia.toml", ON)
    assert "mirrors.toml" in why_no_cdi("containerd://1.7.28", "v1.30.14", read_containerd(tmp_path))
    write(tmp_path, "/etc/containerd/conf.d/nvidia.toml", ON)
    assert why_no_cdi("containerd://1.7.28", "v1.30.14", read_containerd(tmp_path)) == ""


def test_an_imported_file_imports_others_after_it_and_none_by_default(tmp_path: Path) -> None:
    write(tmp_path, ETC, 'imports = ["a.toml", "z.toml"]\n')
    write(tmp_path, "/etc/containerd/a.toml", f'imports = ["/opt/b.toml", "config.toml"]\n{ON}')
    write(tmp_path, "/opt/b.toml", ON)
    write(tmp_path, "/etc/containerd/z.toml", OFF)
    write(tmp_path, "/etc/containerd/conf.d/99-nvidia.toml", OFF)
    assert list(read_containerd(tmp_path).items()) == [
        ("/etc/containerd/a.toml", True),
        ("/etc/containerd/z.toml", False),
        ("/opt/b.toml", True),
    ]


def test_a_folder_that_was_moved_to_another_disk_is_found_through_its_link(tmp_path: Path) -> None:
    """Such a link is absolute: followed from the root of the agent's container it leads nowhere."""
    write(tmp_path, f"/data{K3S.removeprefix('/var/lib')}", 'imports = ["more/*.toml"]\n')
    write(tmp_path, f"/data{Path(K3S).parent.as_posix().removeprefix('/var/lib')}/more/a.toml", ON)
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "var/lib/rancher").symlink_to("/data/rancher")
    assert list(read_containerd(tmp_path).values()) == [True]


@pytest.mark.parametrize("imports", ["5", "['[']", "['**/x']", "['/']", "['']", "['conf.d/**.toml']", "['\\u0000']"])
def test_an_odd_import_ends_no_pass(tmp_path: Path, imports: str) -> None:
    write(tmp_path, ETC, f"imports = {imports}\n{ON}")
    write(tmp_path, "/etc/containerd/conf.d/a.toml", OFF)
    (tmp_path / "etc/containerd/b.toml").mkdir()
    expected = [True, False] if "conf.d" in imports else [True]
    assert list(read_containerd(tmp_path).values()) == expected


V1_7, V2 = "containerd://1.7.28", "containerd://2.2.1"


def on(root: Path, runtime: str) -> bool:
    """Whether CDI is believed to be on."""
    return why_no_cdi(runtime, "v1.30.14", read_containerd(root)) == ""


def test_a_folder_that_no_file_imports_says_nothing(tmp_path: Path) -> None:
    """containerd 2.2 prints conf.d as its default, and follows only what a file has."""
    write(tmp_path, ETC, "version = 2\n")
    write(tmp_path, "/etc/containerd/conf.d/99-nvidia.toml", ON)
    assert not on(tmp_path, V1_7)
    write(tmp_path, "/etc/containerd/conf.d/99-nvidia.toml", OFF)
    assert on(tmp_path, V2)


CRI, RUNTIME = 'plugins."io.containerd.grpc.v1.cri"', "plugins.'io.containerd.cri.v1.runtime'"


@pytest.mark.parametrize(
    ("config", "on_1_7", "on_2"),
    [
        (f"version = 2\n[{CRI}.containerd]\nenable_cdi = true", False, True),
        (f"version = 2\n[{CRI}.cdi]\nenable_cdi = false", False, True),
        (f"version = 2\n[other]\nenable_cdi = true\n[{CRI}]\nenable_cdi = false", False, False),
        (f"[{CRI}]\nenable_cdi = true", False, True),
        (f"[{CRI}]\nenable_cdi = false", False, False),
        ("[plugins.cri]\nenable_cdi = true", True, True),
        ("[plugins.cri]\nenable_cdi = false", False, False),
        ("version = 2\n[plugins.cri]\nenable_cdi = true", False, True),
        (f"version = 2\n[{RUNTIME}]\nenable_cdi = true", False, True),
        (f"version = 2\n[{RUNTIME}]\nenable_cdi = false\n[{CRI}]\nenable_cdi = true", False, False),
        (f"version = 2\n{CRI}.enable_cdi = true", True, True),
        (f"version = 3\n[{RUNTIME}]\nenable_cdi = false", None, False),
        (f"version = 3\n[{RUNTIME}]\nenable_cdi = false\n[{CRI}]\nenable_cdi = true", None, False),
        (f"version = 3\n[{RUNTIME}]\nenable_cdi = true\n[{CRI}]\nenable_cdi = false", None, False),
        (f"version = 3\n[{CRI}]\nenable_cdi = false", None, False),
        (f"version = 4\n[{RUNTIME}]\nenable_cdi = false", None, False),
        ("version = 2\nplugins = 3", False, True),
        (f"version = 2\n{CRI} = 3", False, True),
        (f"version = 'x'\n[{CRI}]\nenable_cdi = false", False, False),
    ],
)
def test_it_is_read_where_containerd_reads_it(tmp_path: Path, config: str, on_1_7: bool | None, on_2: bool) -> None:
    """containerd passes over a key in another section with a warning. None: this version does not start with it."""
    write(tmp_path, ETC, config)
    assert on(tmp_path, V2) is on_2
    assert on_1_7 is None or on(tmp_path, V1_7) is on_1_7


@pytest.mark.parametrize("root", [2, 3])
def test_a_file_without_a_version_has_that_of_the_file_that_imports_it(tmp_path: Path, root: int) -> None:
    write(tmp_path, ETC, f'version = {root}\nimports = ["/etc/containerd/conf.d/*.toml"]\n')
    write(tmp_path, "/etc/containerd/conf.d/a.toml", f"[{CRI}]\nenable_cdi = true\n")
    assert on(tmp_path, V2)
    assert on(tmp_path, V1_7) is (root == 2)
    write(tmp_path, "/etc/containerd/conf.d/a.toml", f"[{CRI}]\nenable_cdi = false\n")
    assert not on(tmp_path, V2)
    write(tmp_path, "/etc/containerd/conf.d/a.toml", f"[{RUNTIME}]\nenable_cdi = false\n")
    assert not on(tmp_path, V2)


def test_any_part_of_an_imported_path_may_be_a_pattern(tmp_path: Path) -> None:
    write(tmp_path, ETC, f'imports = ["/etc/*/conf.d/**/*.toml"]\n{ON}')
    write(tmp_path, "/etc/b/conf.d/x/a.toml", ON)
    write(tmp_path, "/etc/a/conf.d/y/z.toml", OFF)
    write(tmp_path, "/etc/a/conf.d/z.toml", OFF)
    assert list(read_containerd(tmp_path)) == [ETC, "/etc/a/conf.d/y/z.toml", "/etc/b/conf.d/x/a.toml"]


def test_a_file_that_imports_itself_by_another_path_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, ETC, f'imports = ["../containerd/config.toml", "./a.toml"]\n{OFF}')
    write(tmp_path, "/etc/containerd/a.toml", f'imports = ["../containerd/./a.toml"]\n{ON}')
    assert list(read_containerd(tmp_path)) == [ETC, "/etc/containerd/a.toml"]


def test_a_file_that_cannot_be_read_is_not_one_that_is_absent(tmp_path: Path) -> None:
    """That of another containerd says nothing of this one."""
    write(tmp_path, ETC, ON)
    (tmp_path / K3S.lstrip("/")).mkdir(parents=True)
    assert not on(tmp_path, V1_7)


@pytest.mark.parametrize("odd", ["pipe", "large"])
def test_a_file_that_would_hold_a_pass_up_is_not_read(tmp_path: Path, odd: str) -> None:
    write(tmp_path, ETC, f'imports = ["odd.toml"]\n{ON}')
    file = tmp_path / "etc/containerd/odd.toml"
    if odd == "pipe":
        os.mkfifo(file)
    else:
        file.write_text(OFF)
        os.truncate(file, 2**40)
    assert list(read_containerd(tmp_path)) == [ETC]
