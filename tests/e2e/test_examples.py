"""The demo and every example on the real control plane, through `python -m tests.e2e.rig`.

The tests of the embedded one are run again here, with nothing changed but the control plane; in addition all but
one of the folders in examples/ must settle. The programs' accounts, rights and policies are those of deploy/.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import sandbox_runs, test_demo, test_sandbox_nvidia, test_sandbox_run
from tests.cli.sandbox_runs import Command, Examples
from tests.e2e.rig.controlplane import Binaries
from tests.e2e.rig.controlplane.leashed import run as run_leashed

EMBEDDED_ONLY = {test_sandbox_nvidia.FOLDER}
EXAMPLES = sorted({path.name for path in sandbox_runs.EXAMPLES.iterdir() if path.is_dir()} - EMBEDDED_ONLY)
SETTLE_SECONDS = 240.0  # the start of the servers on a busy machine included
RUN_SECONDS = SETTLE_SECONDS + 60.0


@pytest.fixture(scope="session")
def settled() -> set[str]:
    """Folders of examples that have run to their end."""
    return set()


def on_real(programs: Binaries, command: str, settled: set[str]) -> Command:
    """`gpuplan sandbox COMMAND`, as the embedded tests call it, on the real control plane."""

    def run(*arguments: str, timeout_seconds: float = RUN_SECONDS) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "tests.e2e.rig", "--kubernetes", programs.kubernetes, command, *arguments]
        done = run_leashed(words, seconds=max(timeout_seconds, RUN_SECONDS), capture_output=True, text=True)
        if done.returncode == 0:
            settled.update(Path(argument).name for argument in arguments if Path(argument).is_dir())
        return done

    return run


@pytest.fixture(autouse=True)
def run(programs: Binaries, settled: set[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The commands that the embedded tests use."""
    found = on_real(programs, "run", settled)
    monkeypatch.setattr(test_sandbox_run, "run", found)
    monkeypatch.setattr(test_demo, "demo", on_real(programs, "demo", settled))
    return found


@pytest.fixture
def examples(run: Command, tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return Examples(tmp_path_factory.getbasetemp(), run, settle_seconds=SETTLE_SECONDS)


# Whatever scenario is added there is run here as well.
for module in (test_sandbox_run, test_demo):
    globals().update({name: test for name, test in vars(module).items() if name.startswith("test_")})


@pytest.mark.parametrize("folder", EXAMPLES)
def test_every_example_settles(run: Command, settled: set[str], folder: str) -> None:
    """Also one that has no test of its own yet; those that have were seen to settle above."""
    if folder in settled:
        return
    done = run("-f", str(sandbox_runs.EXAMPLES / folder), "--timeout", str(SETTLE_SECONDS))
    assert done.returncode == 0, done.stdout + done.stderr
