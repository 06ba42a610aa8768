"""A program that outlives its pod keeps its GPU from the next pod, for as long as it lives and not for much longer."""

import time

import pytest

from tests.hardware.words import Words
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(180)


def test_the_next_pod_waits_for_a_program_that_outlives_its_pod(words: Words) -> None:
    words.create("left", "nvidia.com/gpu")
    words.client("left")
    words.node.clients.unkillable.add("left")
    words.delete("left")
    words.create("next", "nvidia.com/gpu")
    why = eventually(lambda: words.held_by("default/left"), "the program is named", seen=words.state)
    words.report(f"while a program is left: {why}")
    assert not words.node.clients.lines("next")
    assert words.last_line("left")["devices"] == 1, "it works on"
    began = time.monotonic()
    words.node.clients.close()
    assert words.client("next")["devices"] == 1
    words.report(f"the next pod runs {time.monotonic() - began:.1f} s after the end of the program")
    words.delete("next")
