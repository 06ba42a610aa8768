"""Every process writes its log in one format, in UTC, whatever the time zone of the machine is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import logging
from kube.logs import log_to_stderr
log_to_stderr("info")
logging.getLogger("a.module").warning("%s happened", "something")
logging.getLogger("a.module").debug("not this")
"""


def test_one_line_with_the_time_in_utc() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TZ": "Asia/Tokyo"},
    )
    utc = subprocess.run(["date", "-u", "+%Y-%m-%dT%H"], capture_output=True, text=True, check=True).stdout.strip()

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ WARNING a\.module: something happened\n", done.stderr)
    assert done.stderr[:11] == utc[:11]
    assert abs(int(done.stderr[11:13]) - int(utc[11:13])) in (0, 1)


@pytest.mark.parametrize("program", ["nodeagent", "controller"])
def test_each_program_says_its_version(program: str) -> None:
    done = subprocess.run([sys.executable, "-m", program, "--version"], capture_output=True, text=True, check=True)

    assert re.fullmatch(rf"gpuplan-{program} \d+\.\d+\.\d+\S*\n", done.stdout)


@pytest.mark.parametrize(("program", "arguments"), [("nodeagent", ["--node-name", "n1"]), ("controller", [])])
@pytest.mark.parametrize("content", [None, "", "{", "a: b"], ids=["missing", "empty", "no YAML", "no kubeconfig"])
def test_without_a_usable_kubeconfig_a_program_ends_with_a_sentence(
    tmp_path: Path, program: str, arguments: list[str], content: str | None
) -> None:
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content)
    environment = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
    done = subprocess.run(
        [sys.executable, "-m", program, *arguments, "--kubeconfig", str(file)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )

    assert done.returncode == 2
    assert done.stderr.startswith("No usable kubeconfig (")
    assert done.stderr.endswith("). Pass --kubeconfig FILE or set KUBECONFIG.\n")
    assert "Traceback" not in done.stderr
