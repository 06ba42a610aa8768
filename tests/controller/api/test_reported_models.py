"""How many unlike GPU models a node's status may bring: each costs the controller its tables, whatever GPUs it has."""

from typing import Any

import pytest

from controller.api.plan_reader import FRESH_SECONDS, MOST_MODELS, PlanReader
from controller.api.plans import PlanReading
from partitioning.models import GpuModel
from tests.builders import objects
from tests.builders.objects import H100_NAME, Json
from tests.clock import Clock

ODD = "NVIDIA Odd"


def reported(name: str, memory_mib: int) -> Json:
    return {"name": name, "memoryMiB": memory_mib, "profiles": "1g.10gb id 1 slices 1 size 1 at 0,1,2,3"}


def plan(version: int, *models: Json, node: str = "n1") -> Json:
    gpus = [
        {"index": index, "uuid": objects.uuid_of(index), "model": one["name"], "state": "Ready", "migMode": "Enabled"}
        for index, one in enumerate(models)
    ]
    return objects.plan(node, version=version, status={"gpus": gpus, "models": [*models]})


def models(read: PlanReader, raw: Json) -> list[GpuModel | None]:
    found = read(raw)
    assert isinstance(found, PlanReading)
    return [gpu.view.model for gpu in found.gpus]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def spent(read: PlanReader, node: str = "n1") -> int:
    """A status with a fresh model again and again, as with a stolen token; the last version."""
    for version in range(1, MOST_MODELS + 1):
        (model,) = models(read, plan(version, reported(ODD, version), node=node))
        assert model is not None
    return MOST_MODELS


def test_a_node_that_brings_ever_new_models_is_believed_none_more(clock: Clock, caplog: Any) -> None:
    read = PlanReader(clock)
    version = spent(read)
    assert models(read, plan(version + 1, reported(ODD, 10**6))) == [None]
    assert models(read, plan(version + 2, reported(ODD, 10**6 + 1))) == [None]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "plan n1" in said
    assert f"{MOST_MODELS} unlike" in said


def test_what_the_catalogue_knows_of_such_a_card_counts(clock: Clock) -> None:
    read = PlanReader(clock)
    version = spent(read)
    (model,) = models(read, plan(version + 1, reported(H100_NAME, 10**6)))
    assert model is not None
    assert (model.key, model.memory_mib < 10**6) == ("H100-80GB", True)


def test_models_that_it_has_reported_before_stay(clock: Clock) -> None:
    read = PlanReader(clock)
    version = spent(read)
    clock.now += FRESH_SECONDS / 2
    (model,) = models(read, plan(version + 1, reported(ODD, version)))
    assert model is not None
    clock.now += FRESH_SECONDS / 2 + 1
    (model,) = models(read, plan(version + 2, reported(ODD, version)))
    assert model is not None, "counted from when it was last reported"


def test_a_card_of_another_model_is_believed_after_a_while(clock: Clock) -> None:
    read = PlanReader(clock)
    version = spent(read)
    clock.now += FRESH_SECONDS
    (model,) = models(read, plan(version + 1, reported(ODD, 10**6)))
    assert model is not None


def test_no_other_node_pays_for_it(clock: Clock) -> None:
    read = PlanReader(clock)
    spent(read)
    (model,) = models(read, plan(1, reported(ODD, 10**6), node="n2"))
    assert model is not None


def test_nodes_that_are_gone_leave_nothing(clock: Clock) -> None:
    read = PlanReader(clock)
    for number in range(50):
        models(read, plan(1, reported(ODD, number), node=f"gone-{number}"))
    clock.now += FRESH_SECONDS
    models(read, plan(1, reported(ODD, 1), node="here"))
    assert len(read._reported) == 1


def test_what_was_said_of_a_node_that_is_gone_is_forgotten_with_its_models(clock: Clock) -> None:
    """It was kept for ever, and a node of the same name was not named again."""
    read = PlanReader(clock)
    version = spent(read, node="gone")
    models(read, plan(version + 1, reported(ODD, 10**6), node="gone"))
    assert read._changes.last("gone")
    clock.now += FRESH_SECONDS
    models(read, plan(1, reported(ODD, 1), node="here"))
    assert not read._changes.last("gone")


@pytest.mark.parametrize("status", [None, {"models": None}, {"models": 3}, {"models": []}, 7, {"models": [3]}])
def test_a_status_of_another_form_is_judged_where_plans_are_read(clock: Clock, status: Any) -> None:
    read = PlanReader(clock)
    for _ in range(2):
        read({**plan(1000), "status": status})
        clock.now += FRESH_SECONDS
    assert spent(read)
