"""`gpuplan plan` refuses what the API server or every agent would refuse, in the same sentence.

The plans are those that real API servers judge (`tests.e2e.test_crd`); a rule of the CRD without one of them fails
here. What an agent refuses is asked of the agent's own function.
"""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from cli.assumptions import why_impossible
from controller.api.plan_items import desired_of
from controller.model.views import GpuView
from crds.v1alpha1.spec import GpuItem
from deploy.generate.crd import definition
from nodeagent.desired.target import NodeDefaults, Refusal, target
from nodeagent.hardware.driver import MigMode, ObservedGpu
from partitioning.models import GpuModel
from tests.builders.models import MODELS
from tests.builders.objects import node
from tests.builders.objects import plan as plan_object
from tests.cli.plan_command import dump
from tests.e2e.test_crd import ACCEPTED, REFUSED

FULL = {"gpuplan.dev/gpu-partitioning": "auto", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def messages(schema: Mapping[str, Any]) -> Iterator[str]:
    """Of the rules for one object; those for a change compare two."""
    yield from (one["message"] for one in schema.get("x-kubernetes-validations", ()) if "oldSelf" not in one["rule"])
    for inner in (*(schema.get("properties") or {}).values(), *([schema["items"]] if "items" in schema else [])):
        yield from messages(inner)


RULES = set(messages(definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))


def refusal(capsys: pytest.CaptureFixture[str], folder: Path, plan: Any, *, uid: str = "") -> str:
    """What is printed about it, '' where it is taken; `uid`: it was dumped, and then edited."""
    metadata = plan["metadata"] | ({"uid": uid} if uid else {})
    where = node(metadata["name"], labels={**FULL, "nvidia.com/gpu.count": "16"})
    code = main(["plan", "-f", str(dump(folder, where, {**plan, "metadata": metadata}))])
    return capsys.readouterr().err if code == 2 else ""


@pytest.mark.parametrize("uid", ["", "u"], ids=["manifest", "edited dump"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_the_api_server_refuses_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, uid: str
) -> None:
    plan, _, sentence = REFUSED[name]
    printed = refusal(capsys, tmp_path, plan, uid=uid)

    assert printed or (uid and "unknown field" in sentence), "an API server may know more fields"
    assert sentence not in RULES or sentence in printed


def test_each_rule_of_the_crd_has_a_plan_that_breaks_it() -> None:
    assert {sentence for _, _, sentence in REFUSED.values()} >= RULES


@pytest.mark.parametrize("uid", ["", "u"], ids=["manifest", "dump"])
@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_api_server_accepts_is_no_error_of_form(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, uid: str
) -> None:
    printed = refusal(capsys, tmp_path, ACCEPTED[name], uid=uid)

    assert not any(sentence in printed for sentence in RULES)
    assert "document 0" not in printed


NO_LIMIT = "threadPercent limits no slice of mps.slices[].memoryGiB (aliyun.com/gpu-mem)"
PINS: dict[str, tuple[Any, str]] = {
    "threads of GiB": ({"gpus": [{"index": 0, "mps": {"slices": [{"memoryGiB": 4, "threadPercent": 50}]}}]}, NO_LIMIT),
    "MIG by NVIDIA's plugin": (
        {"devicePlugin": {"backend": "nvidia"}, "gpus": [{"index": 0, "mig": {"instances": [{"profile": "1g.10gb"}]}}]},
        "GPU 0: mig.instances: NVIDIA's device plugin serves whole GPUs or equal MPS replicas only",
    ),
    "unlike GPUs by NVIDIA's plugin": (
        {"devicePlugin": {"backend": "nvidia"}, "gpus": [{"index": n, "mps": {"replicas": n + 2}} for n in (0, 1)]},
        "NVIDIA's device plugin serves all GPUs of a node alike",
    ),
}


@pytest.mark.parametrize(("spec", "words"), PINS.values(), ids=PINS)
def test_what_the_schema_takes_and_every_agent_refuses_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, spec: Any, words: str
) -> None:
    assert words in refusal(capsys, tmp_path, plan_object(spec=spec))


def random_item(rng: random.Random, model: GpuModel) -> GpuItem:
    """Of MIG instances, MPS slices or replicas, as the schema takes it."""
    what = rng.choice(["slices", "replicas", *(["mig"] * 3 if model.profiles else [])])
    if what == "replicas":
        return GpuItem.read({"index": 0, "mps": {"replicas": rng.randint(2, 60)}})
    if what == "slices":
        sizes = [{rng.choice(["memoryGB", "memoryGiB"]): rng.randint(1, 40)} for _ in range(rng.randint(0, 3))]
        more: list[dict[str, int]] = [{}, {"count": rng.randint(1, 48)}, {"threadPercent": rng.randint(1, 100)}]
        return GpuItem.read({"index": 0, "mps": {"slices": [{**size, **rng.choice(more)} for size in sizes]}})
    profiles = [*(one.name for one in model.profiles), "9g.80gb"]
    ways: list[dict[str, int]] = [{}, {"start": rng.randint(0, 8)}, {"count": rng.randint(1, 8)}]
    instances = [{"profile": rng.choice(profiles), **rng.choice(ways)} for _ in range(rng.randint(0, 4))]
    return GpuItem.read({"index": 0, "mig": {"instances": instances}})


def test_a_pin_is_possible_where_an_agent_makes_it() -> None:
    """On empty GPUs of every model whose placements are known."""
    rng, refused = random.Random(24), 0
    for model in [one for one in MODELS.values() if one.confirmed or not one.mig_capable] * 30:
        item = random_item(rng, model)
        mode = MigMode.ENABLED if item.mig else MigMode.DISABLED if model.mig_capable else MigMode.NOT_SUPPORTED
        gpu = ObservedGpu(index=0, uuid="GPU-1", name=model.names[0], model=model, mig_mode=mode)
        made = target(item, gpu, (), NodeDefaults(driver_version="590.1", replicas_before_volta=True))
        desired = desired_of(item, model=model, memory_mib=model.memory_mib)
        view = GpuView(index=0, uuid="GPU-1", model=model, mig_enabled=item.mig is not None, desired=desired)
        assert why_impossible(view, item) == (made.message if isinstance(made, Refusal) else ""), (model.key, item)
        refused += isinstance(made, Refusal)
    assert 100 < refused < 600
