"""Every process writes its log in one format, in UTC, whatever the time zone of the machine is."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from controller.__main__ import main as controller_main
from kube import logs
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

    line = r"time=(\S{20}) level=warning logger=a\.module msg=\"something happened\"\n"
    found = re.fullmatch(line, done.stderr)
    assert found is not None, done.stderr
    assert found[1][:11] == utc[:11]
    assert abs(int(found[1][11:13]) - int(utc[11:13])) in (0, 1)


def lines(capsys: pytest.CaptureFixture[str], form: logs.Format, **always: str) -> list[str]:
    """Of three records: a plain one, one with pairs, one with a traceback."""
    logs.log_to_stderr("info", form, **always)
    log = logging.getLogger("a")
    logs.bind(generation=7)
    log.info('said "%s"', "so", extra=logs.fields(why="", seconds=0.25, done=True, reason="NoCapacity"))
    logs.bind()
    log.info("plain")
    try:
        raise ValueError("x=1")
    except ValueError:
        log.exception("failed")
    return [re.sub(r"\d{4}-\S+Z", "NOW", line) for line in capsys.readouterr().err.splitlines()]


def test_text_is_pairs_of_keys_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third, *trace = lines(capsys, "text", node="n1")
    assert first == (
        r'time=NOW level=info logger=a msg="said \"so\"" node=n1 generation=7 why="" seconds=0.250 done=true '
        "reason=NoCapacity"
    )
    assert second == "time=NOW level=info logger=a msg=plain node=n1"
    assert third == "time=NOW level=error logger=a msg=failed node=n1"
    assert trace[0].startswith("Traceback")
    assert trace[-1] == "ValueError: x=1"


def test_json_is_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = map(json.loads, lines(capsys, "json"))
    known = {"time": "NOW", "level": "info", "logger": "a"}
    assert first == known | {
        **{"msg": 'said "so"', "generation": 7, "why": "", "seconds": 0.25, "done": True, "reason": "NoCapacity"}
    }
    assert second == known | {"msg": "plain"}
    assert third["trace"].endswith("ValueError: x=1")


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
