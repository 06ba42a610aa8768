"""What all test processes of one run share."""

import io
import os
from typing import Any

import pytest
import yaml

from cli.__main__ import main
from tests.cli import sandbox_runs
from tests.cli.configs import Run


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> sandbox_runs.Examples:
    own = tmp_path_factory.getbasetemp()
    return sandbox_runs.Examples(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own, sandbox_runs.run)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit code, documents on stdout, stderr."""

    def call(command: str, manifests: list[dict[str, Any]], *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump_all(manifests)))
        code = main([command, "-f", "-", *arguments])
        printed = capsys.readouterr()
        return code, [document for document in yaml.safe_load_all(printed.out) if document], printed.err

    return call
