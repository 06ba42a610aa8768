"""Every process writes its log in one format, in UTC, whatever the time zone of the machine is."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from controller.__main__ import main as controller_main
from nodeagent.__main__ import main as nodeagent_main

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
def test_each_program_prints_its_version(program: str) -> None:
    done = subprocess.run([sys.executable, "-m", program, "--version"], capture_output=True, text=True, check=True)

    assert re.fullmatch(rf"gpuplan-{program} \d+\.\d+\.\d+\S*\n", done.stdout)


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize(("main", "arguments"), [(nodeagent_main, ["--node-name", "n1"]), (controller_main, [])])
@pytest.mark.parametrize("content", [None, "", "{", "a: b"], ids=["missing", "empty", "no YAML", "no kubeconfig"])
def test_without_a_usable_kubeconfig_a_program_ends_with_a_sentence(  # noqa: PLR0917
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    main: Callable[[Sequence[str]], int],
    arguments: list[str],
    content: str | None,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content)

    assert main([*arguments, "--kubeconfig", str(file)]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("No usable kubeconfig (")
    assert printed.endswith("). Pass --kubeconfig FILE or set KUBECONFIG.\n")
