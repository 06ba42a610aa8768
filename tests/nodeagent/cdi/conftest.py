"""The node of a test."""

from pathlib import Path

import pytest

from tests.nodeagent.cdi.node import CdiNode


@pytest.fixture
def node(tmp_path: Path) -> CdiNode:
    return CdiNode(tmp_path)
