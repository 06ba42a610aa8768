"""A container's running time, read from its command."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.kubelet.pods import running_seconds


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        (["sleep", "5"], [], 5),
        (["/bin/sleep", "0.5"], [], 0.5),
        ([], ["sleep", "60"], 60),
        (["sleep"], ["2m"], 120),
        (["sleep", "1h", "30s"], [], 3630),
        (["sleep", "1d"], [], 86400),
        (["sh", "-c", "sleep 5"], [], 5),
        (["sh", "-c"], ["echo hello; sleep 5 && sleep 2; echo done"], 7),
        (["bash", "-c", "nvidia-smi -L;sleep 3;"], [], 3),
        (["sleep", "infinity"], [], math.inf),
        (["sh", "-c", "trap : TERM; sleep infinity & wait"], [], math.inf),
        (["sh", "-c", "sleep $SECONDS"], [], math.inf),
        (["sh", "-c", "while true; do nvidia-smi; sleep 5; done"], [], math.inf),
        (["sh", "-c", "for i in 1 2 3; do sleep 5; done"], [], math.inf),
        (["python", "train.py"], [], None),
        (["python", "-c", "import time; time.sleep(30)"], [], math.inf),
        (["train", "--sleep", "5"], [], None),
        (["oversleep", "5"], [], None),
        ([], [], None),
    ],
)
def test_running_seconds(command: list[str], args: list[str], expected: float | None) -> None:
    assert running_seconds(command, args) == expected


@given(st.lists(st.text(max_size=20), max_size=6), st.lists(st.text(max_size=20), max_size=6))
def test_no_command_line_is_too_strange(command: list[str], args: list[str]) -> None:
    seconds = running_seconds(command, args)

    assert seconds is None or seconds >= 0
