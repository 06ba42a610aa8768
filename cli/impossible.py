"""Finds what of a plan in a file the API server or every agent would refuse, in their own words.

Takes a plan as the controller reads it and its spec as it is written; returns a sentence for each problem. A dumped
plan that was edited since is judged as one that a person wrote. Never judges what depends on a node's settings.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from cli.assumptions import why_impossible
from cli.manifests import broken_rules
from controller.api.plans import PlanReading
from controller.explanation.phrases import counted
from crds.v1alpha1.names import KIND
from crds.v1alpha1.nvidia_backend import node_config
from crds.v1alpha1.plan import effective_items
from crds.v1alpha1.spec import PlanSpec


def impossible(reading: PlanReading, spec: Mapping[str, Any]) -> Iterable[str]:
    """What the API server or every agent would refuse."""
    problems = broken_rules({"metadata": {"name": reading.name}, "spec": spec})
    for field, part in (("spec", spec), ("spec.planned", spec.get("planned") or {})):
        listed = Counter(item["index"] for item in part.get("gpus") or ())
        problems += [f"{field}.gpus: index {index} is there twice" for index in listed if listed[index] > 1]
    if not problems:
        problems += _impossible_pins(reading, PlanSpec.read(spec))
    return [f"{KIND} {reading.name}: {problem}" for problem in problems]


def _impossible_pins(reading: PlanReading, spec: PlanSpec) -> Iterable[str]:
    views = {gpu.view.index: gpu.view for gpu in reading.gpus}
    items = effective_items(spec, {index: view.uuid for index, view in views.items() if view.uuid})
    if reading.by_nvidia and isinstance(found := node_config(spec), str):
        yield f"spec: {found}"
    for index in reading.pinned:
        if index not in views:
            yield f"spec.gpus: GPU {index} is none of its node's {counted(len(views), 'GPU')}"
        elif problem := why_impossible(views[index], items[index]):
            yield f"spec.gpus: GPU {index}: {problem}"
