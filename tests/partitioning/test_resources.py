"""Resource names, both ways, and what each requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.models import known_models
from partitioning.resources import (
    ACK_MEMORY,
    SHARED,
    WHOLE,
    AckRequest,
    MigRequest,
    MpsRequest,
    NoMemoryRequest,
    ResourceRequest,
    SharedRequest,
    WholeRequest,
    classify,
    mig_resource,
    mps_gb_of_resource,
    mps_resource_gb,
    profile_of_resource,
)

EVERY_NAME = sorted({spec.name for model in known_models() for spec in model.profiles})


@pytest.mark.parametrize(
    ("profile", "resource"),
    [
        ("1g.10gb", "nvidia.com/mig-1g.10gb"),
        ("1g.10gb+me", "nvidia.com/mig-1g.10gb.me"),
        ("1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all"),
        ("1g.24gb+gfx", "nvidia.com/mig-1g.24gb.gfx"),
        ("1g.24gb-me", "nvidia.com/mig-1g.24gb-me"),
        ("1g.24gb+gfx+me.all", "nvidia.com/mig-1g.24gb.gfx.me.all"),
    ],
)
def test_a_profile_and_its_resource_lead_to_each_other(profile: str, resource: str) -> None:
    assert mig_resource(profile) == resource
    assert profile_of_resource(resource) == profile


@pytest.mark.parametrize("profile", EVERY_NAME)
def test_every_catalogued_profile_survives_the_round_trip(profile: str) -> None:
    assert profile_of_resource(mig_resource(profile)) == profile


@given(st.integers(1, 10**6))
def test_every_mps_size_survives_the_round_trip(memory_gb: int) -> None:
    assert mps_gb_of_resource(mps_resource_gb(memory_gb)) == memory_gb


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        (WHOLE, WholeRequest()),
        (SHARED, SharedRequest()),
        (ACK_MEMORY, AckRequest()),
        ("nvidia.com/gpu-10gb", MpsRequest(memory_gb=10)),
        ("nvidia.com/mig-1g.5gb", MigRequest(profile="1g.5gb")),
        ("nvidia.com/mig-1g.5gb.me", MigRequest(profile="1g.5gb+me")),
        ("nvidia.com/mig-1g.5gb.shared", None),
        ("nvidia.com/mig-1g.5gb.me.shared", None),
        ("nvidia.com/mig-1g.5gb+me", None),
        ("nvidia.com/mig-0g.5gb", None),
        ("nvidia.com/mig-", None),
        ("nvidia.com/gpu-0gb", NoMemoryRequest()),
        ("nvidia.com/gpu-010gb", None),
        ("nvidia.com/gpu-10GB", None),
        ("nvidia.com/gpu-10gb-x", None),
        ("amd.com/gpu", None),
        ("cpu", None),
        ("", None),
    ],
)
def test_a_name_is_classified(name: str, request_: ResourceRequest | None) -> None:
    assert classify(name) == request_


@given(st.text(max_size=30))
def test_any_other_name_requests_nothing_and_never_fails(tail: str) -> None:
    request = classify("nvidia.com/mig-" + tail)
    assert request is None or (isinstance(request, MigRequest) and mig_resource(request.profile).endswith(tail))
