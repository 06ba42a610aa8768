"""`gpuplan sandbox run` as a person runs it: a process, its exit code, its JSON. Each example runs once for all."""

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
GUIDE = Path(__file__).parents[2] / "docs/mps.md"

Command = Callable[..., subprocess.CompletedProcess[str]]


def run(*arguments: str, timeout_seconds: float = 260.0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli", "sandbox", "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)


class Examples:
    """One run of each example serves every test of it, in all processes of the test run: they share the folder."""

    def __init__(self, folder: Path, run: Command, *, settle_seconds: float = 240.0) -> None:
        self._folder, self._run, self._settle_seconds = folder, run, settle_seconds

    def result(self, name: str) -> dict[str, Any]:
        """What the command prints."""
        with (self._folder / f"sandbox-run-{name}.json").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            printed = file.read()
            if not printed:
                printed = self._printed(name)
                file.write(printed)
        result: dict[str, Any] = json.loads(printed)
        assert set(result) == {"seconds", "pods", "plans", "containers"}
        return result

    def outcome(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Pods and plans by name."""
        result = self.result(name)
        pods = {pod["name"]: pod for pod in result["pods"]}
        return pods, {plan["metadata"]["name"]: plan for plan in result["plans"]}

    def _printed(self, name: str) -> str:
        done = self._run("-f", str(EXAMPLES / name), "--timeout", str(self._settle_seconds), "-o", "json")
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""  # progress is for terminals
        return done.stdout


def ready(plan: dict[str, Any]) -> dict[str, Any]:
    return next(c for c in plan["status"]["conditions"] if c["type"] == "Ready")
