"""The conformance list of the embedded API server, run against it and against the real one in one go.

A check that the real server does not pass is wrong, and a check that ours does not pass is a difference: both fail
here. What an old version answers otherwise is listed below with the reason; a listed check that passes fails too, so
that the list cannot rot.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

from tests.e2e.real_cluster import ROOT, RealCluster

SUITE = "tests/sandbox/apiserver"
LIST_SECONDS = 500
# Minor version -> checks (file::name, without parameters) that it answers otherwise, and why.
OLD_ANSWERS: dict[int, dict[str, str]] = {
    30: {
        "test_conformance_definitions::test_what_is_wrong_is_named[list map]": "prints a Go map as the value",
        "test_conformance_definitions::test_what_is_wrong_is_named[one of]": 'puts "object": before a CEL message',
        "test_conformance_definitions::test_kubectl_shows_the_complaint": 'puts "object": before a CEL message',
        "test_conformance_status::test_a_required_field_of_a_condition_is_missed": "names fields relative to status",
        "test_conformance_status::test_a_status_apply_owns_status_only": "records labels that it ignores as owned",
    },
    34: {
        "test_conformance_definitions::test_what_is_wrong_is_named[one of]": 'puts "object": before a CEL message',
        "test_conformance_definitions::test_kubectl_shows_the_complaint": 'puts "object": before a CEL message',
        "test_conformance_status::test_a_status_apply_owns_status_only": "records labels that it ignores as owned",
    },
}


def outcomes(kubeconfig: Path | None, report: Path) -> dict[str, str]:
    """Check -> passed, failed or skipped; against the embedded server where no kubeconfig is given."""
    environ = {key: value for key, value in os.environ.items() if key != "GPUPLAN_CONFORMANCE_KUBECONFIG"}
    if kubeconfig:
        environ["GPUPLAN_CONFORMANCE_KUBECONFIG"] = str(kubeconfig)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", SUITE, "-k", "conformance"]
    done = subprocess.run(
        [*command, "--timeout=240", f"--junitxml={report}"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIST_SECONDS,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kind = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        found[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"] = kind
    return found


def test_both_servers_give_the_same_answers(cluster: RealCluster, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(cluster.plane.kubeconfig())
    ours: dict[str, str] = {}
    other = threading.Thread(target=lambda: ours.update(outcomes(None, tmp_path / "embedded.xml")))
    other.start()
    real = outcomes(config, tmp_path / "real.xml")
    other.join()
    known = OLD_ANSWERS.get(cluster.minor, {})
    failed = sorted(name for name, kind in real.items() if kind not in ("passed", "skipped"))
    assert len(ours) > 100
    assert [name for name, kind in ours.items() if kind not in ("passed", "skipped")] == []
    assert [name for name in failed if name not in known] == []
    assert [name for name in known if name not in failed] == [], "these pass: take them off the list"
