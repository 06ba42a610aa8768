"""What NVIDIA's device plugin cannot do is refused with the field and the remedy, before anything is written."""

from typing import Any

import pytest
from pydantic import ValidationError

from crds.definition import text
from crds.v1alpha1.nvidia_backend import node_config
from crds.v1alpha1.spec import PlanSpec
from partitioning.nvidia_plugin import NodeConfig

SLICES = {"slices": [{"memoryGB": 10}]}


def spec(*items: dict[str, Any], **plugin: Any) -> PlanSpec:
    gpus = [{"index": index, **item} for index, item in enumerate(items)]
    return PlanSpec.model_validate({"nodeName": "a", "gpus": gpus, "devicePlugin": {"backend": "nvidia", **plugin}})


def replicas(count: int, **more: bool) -> dict[str, Any]:
    return {"mps": {"replicas": count, **more}}


@pytest.mark.parametrize(
    ("found", "config"),
    [
        (spec(), None),
        (spec({"whole": {}}, {"whole": {}}), NodeConfig()),
        (spec(replicas(4), replicas(4)), NodeConfig(replicas=4, renamed=True)),
        (spec(replicas(4), renameByDefault=False), NodeConfig(replicas=4)),
        (spec(replicas(4, renameByDefault=True), renameByDefault=False), NodeConfig(replicas=4, renamed=True)),
        (spec(replicas(4, failRequestsGreaterThanOne=False)), NodeConfig(replicas=4, renamed=True, mergeable=True)),
    ],
)
def test_one_config_for_all_gpus(found: PlanSpec, config: NodeConfig | None) -> None:
    assert node_config(found) == config


def test_what_no_plugin_of_ours_does_is_no_field() -> None:
    with pytest.raises(ValidationError):
        PlanSpec.model_validate({"nodeName": "a", "devicePlugin": {"backend": "nebuly"}})
    assert "migStrategy" not in text()


@pytest.mark.parametrize(
    ("found", "field"),
    [
        (spec({"mig": {"instances": []}}), "GPU 0: mig.instances: "),
        (spec({"mps": SLICES}), "GPU 0: mps.slices: "),
        (spec(replicas(4), replicas(2)), "GPU 1: mps: it differs from that of GPU 0"),
        (spec({"whole": {}}, replicas(2)), "GPU 1: mps: "),
        (spec(replicas(2), {"whole": {}}), "GPU 1: whole: "),
    ],
)
def test_what_it_cannot_do_names_the_field_and_the_remedy(found: PlanSpec, field: str) -> None:
    refused = node_config(found)
    assert isinstance(refused, str)
    assert refused.startswith(field)
    assert refused.endswith("devicePlugin.backend gpuplan, which serves each GPU by itself")
