"""The one test of this folder that is always collected: its reason tells why the others are not."""

import os

import pytest


def test_the_real_control_plane_is_requested() -> None:
    if os.environ.get("GPUPLAN_E2E") != "1":
        pytest.skip("the real control plane is not requested: set GPUPLAN_E2E=1, or use `make e2e`")
