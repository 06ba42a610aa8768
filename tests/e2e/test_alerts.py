"""The chart's alerts as Prometheus' promtool reads them: each fires for its fault, and none in a rolling upgrade."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy import alert_cases
from tests.e2e.rig.containers.debian import unpacked
from tests.e2e.rig.controlplane import Missing, Places


@pytest.fixture(scope="module")
def promtool() -> Path:
    """Of Debian's package; unpacked into the cache, not installed."""
    found = unpacked("debian-prometheus", ("prometheus",), Places.of(os.environ, Path.home()))
    if isinstance(found, Missing):
        pytest.skip(f"no promtool: {found.message}")
    return found / "usr/bin/promtool"


def run(promtool: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(promtool), *arguments], capture_output=True, text=True, timeout=300, check=False)


def test_promtool_accepts_the_rules(promtool: Path) -> None:
    done = run(promtool, "check", "rules", *(str(path) for path in alert_cases.RULES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == len(alert_cases.RULES) > 0


def test_each_alert_fires_for_its_fault_alone_stops_after_it_and_none_fires_in_an_upgrade(
    promtool: Path, tmp_path: Path
) -> None:
    tests = tmp_path / "tests.yaml"
    tests.write_text(alert_cases.unit_tests())
    done = run(promtool, "test", "rules", str(tests))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "edit",
    [
        ("controller", "silent: 14", "silent: 16"),
        ("controller", "fires: 16", "fires: 14"),
        ("controller", "over: 31", "over: 29"),
        ("upgrade", "_x10 0x10 1x150", "_x10 0x16 1x150"),  # no controller leads for 16 minutes
    ],
)
def test_an_alert_at_the_wrong_time_is_found(
    promtool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: tuple[str, str, str]
) -> None:
    file, old, new = edit
    shutil.copytree(alert_cases.CASES, tmp_path / "alerts")
    monkeypatch.setattr(alert_cases, "CASES", tmp_path / "alerts")
    path = tmp_path / "alerts" / f"{file}.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    tests = tmp_path / "tests.yaml"
    tests.write_text(alert_cases.unit_tests())
    done = run(promtool, "test", "rules", str(tests))
    assert done.returncode != 0
    assert "GpuplanNoLeader" in done.stdout + done.stderr
