"""Following the advice of InvalidLayout makes the plan valid, for every two and three placements of an H100."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from crds.v1alpha1.spec import GpuItem
from nodeagent.desired.target import MigTarget, Refusal, Target, target
from nodeagent.hardware.driver import MigMode, ObservedGpu
from tests.builders.models import H100
from tests.drawn import thorough
from tests.nodeagent.items import mig

GPU = ObservedGpu(index=0, uuid="GPU-1", name="H100", model=H100, mig_mode=MigMode.ENABLED)
PLACEMENTS = [(spec.name, start) for spec in H100.profiles for start in spec.starts]
Placed = tuple[str, int]
START = re.compile(r"; start (\S+) at (\d+), or leave start out$")


def target_of(*instances: Placed | str) -> Target:
    return target(GpuItem.read(mig(0, *instances)), GPU, ())


def moved(listed: tuple[Placed, ...], what: str, start: int) -> Iterator[tuple[Placed, ...]]:
    """The list with one of these placements moved: any of the profile, or for `one` any that is listed twice."""
    for n, (profile, _) in enumerate(listed):
        if what == profile or (what == "one" and listed.count(listed[n]) > 1):
            yield (*listed[:n], (profile, start), *listed[n + 1 :])


@pytest.mark.parametrize("count", [2, *thorough(3)])
def test_following_the_remedy_gives_a_valid_plan(count: int) -> None:
    advised = dict.fromkeys(("start", "counts", "fewer"), 0)
    for listed in combinations_with_replacement(PLACEMENTS, count):
        found = target_of(*listed)
        if isinstance(found, MigTarget):
            assert len(set(listed)) == count
            continue
        assert isinstance(found, Refusal)
        if match := START.search(found.message):
            choices = list(moved(listed, match[1], int(match[2])))
            assert any(isinstance(target_of(*changed), MigTarget) for changed in choices), (listed, found.message)
            assert all(len(set(changed)) == count for changed in choices if isinstance(target_of(*changed), MigTarget))
            advised["start"] += 1
        elif "leave the starts out" in found.message:
            assert isinstance(target_of(*(profile for profile, _ in listed)), MigTarget), (listed, found.message)
            advised["counts"] += 1
        else:
            assert "no room for all of them, so plan fewer" in found.message
            assert isinstance(target_of(*(profile for profile, _ in listed)), Refusal), (listed, found.message)
            advised["fewer"] += 1
    assert advised["start"]
    assert advised["fewer"]
    assert advised["counts"] or count == 2


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (
            [("1g.10gb", 0), ("1g.10gb", 0)],
            "1g.10gb at 0 is listed twice; start one at 1, or leave start out",
        ),
        ([("3g.40gb", 0), ("3g.40gb", 0)], "3g.40gb at 0 is listed twice; start one at 4, or leave start out"),
        (
            [("7g.80gb", 0), ("7g.80gb", 0)],
            "7g.80gb at 0 is listed twice; the GPU has no room for all of them, so plan fewer",
        ),
        (
            [("3g.40gb", 0), ("3g.40gb", 4), ("1g.10gb", 2)],
            "3g.40gb at 0 and 1g.10gb at 2 overlap: each memory slice belongs to one instance; "
            "the GPU has no room for all of them, so plan fewer",
        ),
    ],
)
def test_the_message(listed: list[Placed], message: str) -> None:
    found = target_of(*listed)
    assert isinstance(found, Refusal)
    assert found.message == message


@pytest.mark.parametrize(("name", "named"), [("NVIDIA RTX PRO 6000 Blackwell", True), ("Tesla T4", False)])
def test_the_way_of_a_workstation_card_to_mig_is_named(name: str, named: bool) -> None:
    card = replace(GPU, name=name, mig_mode=MigMode.NOT_SUPPORTED)
    found = target(GpuItem.read(mig(0, ("1g.10gb", 0))), card, ())
    assert isinstance(found, Refusal)
    assert ("displaymodeselector" in found.message) is named
