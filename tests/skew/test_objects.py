"""Controller and agents of neighbouring versions: each understands the plan as the other one writes it.

`earlier/plans.yaml` holds plans as controller and agents of 0.1.0 write them; `readers.json` has
the schema by which they read plans. The API server has the newest CRD: it is upgraded first and never goes back.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from jsonschema import Draft202012Validator

from controller.api.plan_items import item_of
from controller.api.plans import PlanReading, Stage, read_plan
from controller.model.views import PlannedGpu
from controller.planning import plan
from crds.v1alpha1.names import GpuState, PartitionState
from crds.v1alpha1.plan import GPUPartitionPlan, effective_items, item_hash
from crds.v1alpha1.status import DevicePluginStatus, GpuStatus, PartitionStatus
from deploy.generate.crd import definition
from nodeagent.desired.plan import parse_plan
from tests.builders import objects
from tests.controller.planner.builders import cluster, mig, server

EARLIER = Path(__file__).parent / "earlier"
PLANS = {body["metadata"]["name"]: body for body in yaml.safe_load_all((EARLIER / "plans.yaml").read_text())}
SCHEMA = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
EARLIER_READER = Draft202012Validator(json.loads((EARLIER / "readers.json").read_text())["plan"])


@pytest.mark.parametrize("name", PLANS)
def test_the_controller_knows_what_an_earlier_agent_confirmed(name: str) -> None:
    reading = read_plan(PLANS[name])

    assert isinstance(reading, PlanReading)
    assert reading.observed_generation == reading.generation
    planned = {gpu.index for gpu in reading.planned}
    assert {gpu.view.index for gpu in reading.gpus if gpu.item_hash} == planned
    assert {gpu.stage for gpu in reading.gpus} == {Stage.SETTLED}, "hashes of items are the same in both versions"
    used = {partition.id for gpu in reading.gpus for partition in gpu.view.partitions if partition.used}
    assert used == {device for _, device in reading.in_use} != set()


@pytest.mark.parametrize("name", PLANS)
def test_the_agent_carries_out_what_an_earlier_controller_planned(name: str) -> None:
    observed = parse_plan(PLANS[name])

    assert observed.content is not None, observed.problem
    items = {index: item.wire() for index, item in effective_items(observed.content.spec).items()}
    assert items == {item["index"]: item for item in PLANS[name]["spec"]["planned"]["gpus"]}


@pytest.mark.parametrize("name", PLANS)
def test_the_newest_crd_takes_objects_of_earlier_programs(name: str) -> None:
    errors = [error.message for error in Draft202012Validator(SCHEMA).iter_errors(PLANS[name])]

    assert errors == []


def values(model: type[Any], field: str) -> list[str]:
    """The closed set of a field."""
    found: list[str] = []
    for part in (annotation := model.model_fields[field].annotation, *get_args(annotation)):
        found += [value for value in get_args(part) if isinstance(value, str)]
    return sorted(set(found))


def reported(state: str, partition_state: str) -> dict[str, Any]:
    """A plan with a GPU in this state, as an agent writes it."""
    gpu = GpuStatus(index=0, uuid="GPU-a", model="m", state=state, reason="Reason", message="m")  # type: ignore[arg-type]  # a value of the closed set
    partition = PartitionStatus(resource="nvidia.com/gpu", uuid="GPU-a", state=partition_state)  # type: ignore[arg-type]  # the same
    return {
        **objects.manifest(objects.plan("n")),
        "status": {"observedGeneration": 1, "gpus": [{**gpu.wire(), "partitions": [partition.wire()]}]},
    }


@pytest.mark.parametrize("state", values(GpuStatus, "state"))
@pytest.mark.parametrize("partition_state", values(PartitionStatus, "state"))
def test_an_earlier_controller_reads_every_state_that_an_agent_writes(state: str, partition_state: str) -> None:
    """A new value of a closed set would make the whole plan unreadable to it, and its node unused."""
    EARLIER_READER.validate(reported(state, partition_state))


def test_the_sets_are_those_of_the_api() -> None:
    assert values(GpuStatus, "state") == sorted(GpuState)
    assert values(PartitionStatus, "state") == sorted(PartitionState)


def test_an_earlier_reader_ignores_fields_that_it_does_not_know() -> None:
    found = reported("Ready", "Used")
    found["status"]["devicePlugin"] = DevicePluginStatus(device_list_strategy="envvar").wire()
    found["spec"]["later"] = found["status"]["later"] = "x"

    EARLIER_READER.validate(found)
    assert GPUPartitionPlan.read(found).spec.node_name == "n"


def test_an_earlier_agent_applies_what_is_planned_for_cards_that_moved() -> None:
    """It takes the item of an index, and refuses one of another card; so both are written as they are now."""
    gpus = [mig(index, idle=[("1g.5gb", index)]) for index in range(3)]
    before = tuple(PlannedGpu(index=gpu.index, uuid=gpu.uuid, desired=gpu.desired) for gpu in gpus if gpu.desired)
    moved = tuple(replace(gpu, index=(gpu.index + 1) % 3, state="Failed", settled=False) for gpu in gpus)
    node, view = server("node-1", *moved)

    (change,) = plan(cluster((node, replace(view, planned=before)))).node_changes

    items = {item["index"]: item for item in (item_of(gpu).wire() for gpu in change.gpus)}
    assert {gpu.index: items[gpu.index]["uuid"] for gpu in moved} == {gpu.index: gpu.uuid for gpu in moved}
    assert [items[gpu.index]["mig"]["instances"][0]["start"] for gpu in moved] == [0, 1, 2]


def test_an_earlier_agents_refusal_of_a_card_that_moved_is_not_taken_for_its_confirmation() -> None:
    raw = objects.plan("n1", planned=[objects.item(0, 0), objects.item(1, 3)])
    refused = [{**objects.gpu(index, state="Failed"), "uuid": objects.uuid_of(1 - index)} for index in range(2)]

    reading = read_plan({**raw, "status": objects.status(*refused)})

    assert isinstance(reading, PlanReading)
    assert {gpu.stage for gpu in reading.gpus} == {Stage.STOPPED}
    assert [gpu.item_hash for gpu in reading.gpus] == [item_hash(objects.item(1, 3)), item_hash(objects.item(0, 0))]
