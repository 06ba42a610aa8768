"""The node of a test."""

from pathlib import Path

import pytest

from tests.nodeagent.cdi.node import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)
