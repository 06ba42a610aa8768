"""What the status contains: sizes, models, hashes, and when it is written."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from crds.v1alpha1.plan import item_hash
from crds.v1alpha1.spec import GpuItem
from crds.v1alpha1.status import profiles_of
from nodeagent.report.publish import same
from nodeagent.report.reporter import QUICK_SECONDS
from sandbox.driver import boards
from tests import incidents
from tests.builders.models import H100, T4
from tests.nodeagent.conftest import MakeWorld, cut, empty, plain
from tests.nodeagent.items import Raw, mig
from tests.nodeagent.report.schema import check
from tests.nodeagent.report.test_conditions import REFUSED
from tests.nodeagent.world import World


def test_the_status_fits_the_schema_in_every_state(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)), plain(), (T4, {}))
    world.settle(3)
    world.pod("nvidia.com/mig-3g.40gb")
    world.apply(
        mig(0, ("7g.80gb", 0)),
        {"index": 1, "mps": {"slices": [{"memoryGB": 1, "count": 48}]}},
        mig(2, "1g.10gb"),
        mig(9, "1g.10gb"),
    )

    for _ in range(8):
        world.run()
        check(world)

    assert len(world.gpu_status(1)["partitions"]) == 48
    assert world.status()["summary"] == {
        **{"mode": "Auto", "gpus": 3, "model": "mixed"},
        **{"mig": "1/1", "mps": "0/48", "whole": "0/1"},
    }


def test_an_empty_node_shows_its_gpus_and_whether_mig_mode_is_on(make_world: MakeWorld) -> None:
    for gpus, mig_column in ((empty(2), "0/0"), ((plain(), plain()), "off"), (((T4, {}), (T4, {})), None)):
        world = make_world(*gpus)
        world.apply()
        world.settle()
        found = world.status()["summary"]
        assert (found["gpus"], found.get("mig")) == (2, mig_column)
        assert found["model"] == ("H100-80GB" if mig_column else T4.key)


def test_the_last_change_of_a_gpu_stays_and_its_event_names_it(make_world: MakeWorld) -> None:
    world = make_world(cut(("1g.10gb", 6)), *empty(1))
    world.settle(4)
    holder = world.pod("nvidia.com/mig-1g.10gb")
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle()
    assert world.found()[0] == "WaitingForRelease"
    world.clock.now += QUICK_SECONDS
    world.finish(holder)
    world.settle()

    change = world.gpu_status()["lastChange"]
    assert (change["created"], change["destroyed"]) == (["mig-7g.80gb at 0"], ["mig-1g.10gb at 6"])
    assert change["generation"] == 1
    assert "lastChange" not in world.gpu_status(1)
    text = "GPU 0 matches the plan: created mig-7g.80gb at 0 and destroyed mig-1g.10gb at 6 (generation 1)."
    assert confirmed(world) == [text]

    world.restart()
    world.apply(mig(0, ("7g.80gb", 0)), mig(1, ("1g.10gb", 0)))
    world.settle()
    assert world.gpu_status()["lastChange"] == change, "nothing of it has changed since"
    assert world.gpu_status(1)["lastChange"]["created"] == ["mig-1g.10gb at 0"]
    assert confirmed(world) == [text], "of a change that was over within seconds the status is enough"
    check(world)


def test_a_gpu_that_had_failed_has_an_event_however_soon_it_is_ready(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    uuid = world.gpu().uuid
    incidents.lose(world.machine, uuid)
    world.run(0.5)
    assert world.found()[0] == "Failed"
    world.events.clear()
    incidents.find_again(world.machine, uuid)
    world.settle()

    assert world.found()[0] == "Ready"
    assert confirmed(world) == ["GPU 0 matches the plan."]


def confirmed(world: World) -> list[str]:
    return [text for _, reason, text in world.events if reason == "Confirmed"]


def test_a_gpu_that_was_lost_for_a_while_did_not_change(make_world: MakeWorld) -> None:
    world = make_world(*empty(1))
    world.apply()
    world.settle()
    world.apply(mig(0, ("1g.10gb", 0)))
    world.settle()
    change = world.gpu_status()["lastChange"]

    uuid = world.gpu(0).uuid
    incidents.lose(world.machine, uuid)
    world.settle()
    assert world.found()[0] == "Failed"
    assert world.gpu_status()["lastChange"] == change
    incidents.find_again(world.machine, uuid)
    world.settle()
    assert world.gpu_status()["lastChange"] == change


def test_a_plan_that_cannot_be_read_is_reported_and_changes_nothing(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    world.apply(mig(0, ("7g.80gb", -1)))

    world.settle()

    assert world.layout() == "3g.40gb at 4"
    assert world.condition("Ready")["reason"] == "InvalidLayout"
    assert "start: Input should be greater than or equal to 0" in world.condition("Ready")["message"]
    assert world.condition("Stalled")["status"] == "True"
    check(world)


def described(part: Raw | list[Any]) -> int:
    """Lines of `kubectl describe`: one for each field, and one for each value in a list of texts or numbers."""
    if isinstance(part, list):
        return sum(described(entry) if isinstance(entry, dict) else 1 for entry in part)
    return sum(1 + (described(value) if isinstance(value, dict | list) else 0) for value in part.values())


def test_an_idle_node_of_four_gpus_is_described_on_two_screens(make_world: MakeWorld) -> None:
    world = make_world(*empty(4))
    world.policy = REFUSED
    world.restart()
    world.apply()
    world.settle()

    above, alive, events = 14, 5, 1  # metadata, spec and the word Status; the controller's condition; Events
    status = world.status()
    assert status["devicePlugin"].pop("deviceListStrategy") == "envvar", "which is not the default"
    assert above + described(status) + alive + events <= 80


def test_models_come_from_nvml_once_each(make_world: MakeWorld) -> None:
    world = make_world(*empty(2), (T4, {}))
    world.apply()

    world.settle()

    names = [model["name"] for model in world.status()["models"]]
    assert names == ["NVIDIA H100 80GB HBM3", "Tesla T4"]
    assert world.status()["models"][0]["computeCapability"] == "9.0"
    profiles = {profile.name: profile.starts for profile in profiles_of(world.status()["models"][0]["profiles"])}
    assert profiles["3g.40gb"] == (0, 4)


def test_a_driver_that_makes_fewer_instances_than_there_is_room_for_is_reported(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [replace(s, max_instances=2) if s.name == "1g.10gb" else s for s in H100.profiles]
    model = replace(H100, profiles=tuple(specs))
    monkeypatch.setattr(boards, "_boards", lambda: {H100.key: boards.Board(model=model)})
    world = make_world(*empty(1))
    world.apply(mig(0, ("1g.10gb", 0), ("1g.10gb", 1), ("1g.10gb", 2)))

    world.settle()

    reported = {p.name: p.max_instances for p in profiles_of(world.status()["models"][0]["profiles"])}
    assert {name: most for name, most in reported.items() if most} == {"1g.10gb": 2}
    assert world.gpu_status().get("partitions", []) == []
    assert "makes at most 2" in world.gpu_status()["message"]
    check(world)


def test_the_plan_hash_is_that_of_the_item_that_was_confirmed(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    first, second = mig(0, ("3g.40gb", 4)), mig(0, ("7g.80gb", 0))
    world.apply(first)
    world.settle()
    confirmed = item_hash(GpuItem.read(first))
    assert world.gpu_status()["planHash"] == confirmed

    holder = world.pod("nvidia.com/mig-3g.40gb")
    world.apply(second)
    world.settle()
    assert (world.found()[0], world.gpu_status()["planHash"]) == ("WaitingForRelease", confirmed)
    world.restart()
    world.settle()
    assert world.gpu_status()["planHash"] == confirmed

    world.finish(holder)
    world.settle()
    assert world.gpu_status()["planHash"] == item_hash(GpuItem.read(second))


def test_the_log_has_one_line_per_change_and_no_list_twice(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world = make_world(*empty())
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    world.apply(mig(0, ("3g.40gb", 0)))
    world.settle()
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle()

    lines = [record.getMessage() for record in caplog.records]
    assert "GPU 0: Ready (Confirmed)" in lines
    assert [line for line in lines if line != line.strip()] == []
    offers = [line for line in lines if line.startswith("advertised to the kubelet")]
    assert len(offers) > 1
    assert all(one != other for one, other in pairwise(offers))


READY = {"type": "Ready", "status": "True"}
STATUS: Raw = {"observedGeneration": 1, "gpus": [], "conditions": [READY]}


@pytest.mark.parametrize(
    ("live", "equal"),
    [
        ({**STATUS}, True),
        ({**STATUS, "conditions": [READY, {"type": "AgentAlive", "status": "True"}]}, True),
        ({**STATUS, "observedGeneration": 2}, False),
        ({**STATUS, "conditions": [{"type": "Ready", "status": "Unknown"}]}, False),
        ({**STATUS, "conditions": [READY, {"type": "Stalled", "status": "True"}]}, False),
        ({**STATUS, "summary": {}}, False),
        ({}, False),
    ],
)
def test_the_live_object_decides_whether_to_write(live: Raw, equal: bool) -> None:
    assert same(STATUS, live) is equal
