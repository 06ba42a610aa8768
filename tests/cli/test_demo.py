"""`gpuplan sandbox demo` to its end: the story of `make demo` comes true."""

import re
import subprocess
import sys

import pytest

from docs.generate.demo import BARS

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(300)]

CHAPTERS = 7
PODS_THAT_FIT = 11


def demo(*arguments: str, timeout_seconds: float = 260.0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli", "sandbox", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)


def shape(bar: str) -> str:
    """Of pods that request the same, either may be first."""
    return re.sub(r"-[a-c]\]", "]", bar.strip())


def test_the_story_comes_true() -> None:
    done = demo()

    assert done.returncode == 0, done.stdout + done.stderr
    assert [int(number) for number in re.findall(r"^(\d+)\. ", done.stdout, re.M)] == list(range(1, CHAPTERS + 1))
    end = done.stdout.rpartition("$ kubectl get gpupartitionplans,pods")[2]
    assert len(re.findall(r"^ +pod/\S+ +1/1 +Running ", end, re.M)) == PODS_THAT_FIT
    assert len(re.findall(r"^ +gpupartitionplan\S+ .* True +Confirmed ", end, re.M)) == 3
    assert re.search(r"^ +pod/too-big +0/1 +Pending ", end, re.M)
    drawn = [shape(line) for line in done.stdout.partition("\n6. ")[2].splitlines() if "GPU " in line]
    assert drawn[: len(BARS.splitlines())] == [shape(line) for line in BARS.splitlines()], "docs/demo.svg is old"
    assert "too-big   NeverFits   No GPU in this cluster offers nvidia.com/mig-7g.141gb" in done.stdout
