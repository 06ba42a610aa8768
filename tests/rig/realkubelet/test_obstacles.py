"""Why there is no real kubelet on a machine: each reason in a sentence."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.rig.controlplane import Missing, Places
from tests.e2e.rig.realkubelet import build, obstacle, obstacles


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine that could run one."""
    (tmp_path / "cpu").mkdir()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda program: f"/bin/{program}")
    (tmp_path / "kmsg").touch()
    monkeypatch.setattr(obstacles, "CGROUPS", tmp_path)
    monkeypatch.setattr(obstacles, "KERNEL_LOG", tmp_path / "kmsg")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, "", ""))
    return monkeypatch


def test_none(able: pytest.MonkeyPatch) -> None:
    assert obstacle() is None


def test_another_system(able: pytest.MonkeyPatch) -> None:
    able.setattr(sys, "platform", "darwin")
    assert obstacle() == "a real kubelet runs on Linux only, and this is darwin"


def test_not_root(able: pytest.MonkeyPatch) -> None:
    able.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in (obstacle() or "")


def test_no_program(able: pytest.MonkeyPatch) -> None:
    able.setattr(shutil, "which", lambda program: None)
    assert "no unshare on PATH" in (obstacle() or "")


def test_no_control_groups(able: pytest.MonkeyPatch, tmp_path: Path) -> None:
    able.setattr(obstacles, "CGROUPS", tmp_path / "cpu")
    assert "control groups" in (obstacle() or "")


def test_no_kernel_log(able: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "kmsg").unlink()
    assert "kmsg cannot be read" in (obstacle() or "")


def test_no_right_to_mount(able: pytest.MonkeyPatch) -> None:
    refused = subprocess.CompletedProcess(["unshare"], 1, "", "unshare failed: Operation not permitted\n")
    able.setattr(subprocess, "run", lambda command, **_: refused)
    assert (obstacle() or "").endswith("unshare failed: Operation not permitted")


def test_the_runtime_without_go(tmp_path: Path) -> None:
    found = build.scripted_runtime(Places(cache=tmp_path, environ=(("PATH", str(tmp_path)),)))
    assert isinstance(found, Missing)
    assert "no go on PATH" in found.message


def test_a_built_runtime_is_taken_from_the_cache(tmp_path: Path) -> None:
    """It is named by its sources, so this one is of these sources."""
    name = build.PROGRAM.file_name
    (tmp_path / name).touch()
    assert build.scripted_runtime(Places(cache=tmp_path)) == tmp_path / name


def test_a_build_that_fails_says_how(tmp_path: Path) -> None:
    (tmp_path / "go").write_text("#!/bin/sh\n[ $1 = mod ] && exit 0\necho undefined: x >&2\nexit 1\n")
    (tmp_path / "go").chmod(0o755)
    environ = (("PATH", f"{tmp_path}:{os.environ['PATH']}"),)
    found = build.scripted_runtime(Places(cache=tmp_path / "cache", environ=environ))
    log = tmp_path / "cache" / "scripted-cri.log"
    assert found == Missing(f"go build of scripted-cri failed: undefined: x (all of it in {log})", broken=True)
