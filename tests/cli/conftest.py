"""What all test processes of one run share."""

import os

import pytest

from tests.cli.sandbox_runs import Examples, run


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    own = tmp_path_factory.getbasetemp()
    return Examples(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own, run)
