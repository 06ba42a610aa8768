"""The progress line: one line that changes on a terminal, and nothing anywhere else."""

import io

import pytest

from sandbox.cli.commands import progress_line
from sandbox.settle import PodReport, Settlement


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def found(node: str, reason: str = "") -> Settlement:
    report = PodReport(namespace="default", name="p", phase="Pending", node=node, reason=reason, message="")
    return Settlement(pods=(report,), waiting=())


def test_the_line_ends_with_the_last_observation_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    show = progress_line()
    show(found(""), False)
    show(found("", "NoCapacity"), False)
    show(found("n"), True)

    lines = [line.rpartition("\033[K")[2] for line in terminal.getvalue().split("\r")[1:]]
    assert lines == [
        "0 bound, 0 explained, 1 waiting",
        "0 bound, 1 explained, 0 waiting",
        "1 bound, 0 explained, 0 waiting\n",
    ]


def test_nothing_is_shown_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    progress_line()(found("n"), True)
    assert pipe.getvalue() == ""
