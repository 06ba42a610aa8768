"""Every example on the real control plane, through `gpuplan sandbox run --control-plane real`.

The tests of the embedded one are run again here, with nothing changed but the control plane; beside them every folder
of examples/ must settle. The programs' accounts, rights and policies are those of deploy/.
"""

import subprocess
import sys
from collections.abc import Callable

import pytest

from sandbox.controlplane import Binaries
from tests.cli import test_sandbox_run as embedded

EXAMPLES = sorted(path.name for path in embedded.EXAMPLES.iterdir() if path.is_dir())
RUN_SECONDS = 300.0


@pytest.fixture(autouse=True)
def run(programs: Binaries, monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`gpuplan sandbox run` as the embedded tests call it, on the real control plane."""

    def on_real(*arguments: str, timeout_seconds: float = RUN_SECONDS) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cli", "sandbox", "run", "--control-plane", "real"]
        command += ["--kubernetes", programs.kubernetes, *arguments]
        seconds = max(timeout_seconds, RUN_SECONDS)
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)

    monkeypatch.setattr(embedded, "run", on_real)
    return on_real


# Whatever scenario is added there is run here as well.
globals().update({name: test for name, test in vars(embedded).items() if name.startswith("test_")})


@pytest.mark.parametrize("folder", EXAMPLES)
def test_every_example_settles(run: Callable[..., subprocess.CompletedProcess[str]], folder: str) -> None:
    done = run("-f", str(embedded.EXAMPLES / folder), "--timeout", "120")
    assert done.returncode == 0, done.stdout + done.stderr
