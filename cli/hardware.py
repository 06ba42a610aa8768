"""Reads what hardware a sandbox node has from the labels that a real node carries.

Takes a Node manifest, returns its GPUs as values, or the field that is wrong with the remedy. Nodes labelled for MIG
start with MIG mode on and no instances; the annotation `sandbox.gpuplan.dev/instances` gives hardware that is already
partitioned, as `0=3g.40gb@4,1g.10gb@0;1=` (GPU index, profile@start; an empty list is MIG mode on with no instance).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from crds.v1alpha1.enablement import enablement
from crds.v1alpha1.names import LABEL_COUNT, LABEL_MEMORY, LABEL_MIG_CAPABLE, LABEL_PRODUCT, Partitioning
from partitioning.layouts import Instance, Layout, check_layout
from partitioning.models import GpuModel, known_products, model_for_product
from partitioning.resources import WHOLE

ANNOTATION_INSTANCES = "sandbox.gpuplan.dev/instances"
MAX_GPUS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One simulated card as it is at power-on."""

    model: GpuModel
    name: str
    memory_mib: int
    mig_enabled: bool
    layout: Layout


def gpus_of(node: Mapping[str, Any]) -> tuple[Gpu, ...] | str:
    """The GPUs of a Node manifest, empty where it has no gpu.product label; or a wrong field, and what is right."""
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    if LABEL_PRODUCT not in labels:
        return ()
    model = model_for_product(labels[LABEL_PRODUCT])
    if model is None:
        known = ", ".join(known_products())
        return _label(LABEL_PRODUCT, f"unknown GPU product {labels[LABEL_PRODUCT]!r}; the sandbox knows: {known}")
    if labels.get(LABEL_MIG_CAPABLE) == "false":
        model = replace(model, profiles=())  # as the driver says of a workstation card whose displays are on
    count = labels.get(LABEL_COUNT, "1")
    if not count.isdecimal() or not 1 <= int(count) <= MAX_GPUS:
        return _label(LABEL_COUNT, f"{count!r} is not a number of GPUs from 1 to {MAX_GPUS}")
    memory = labels.get(LABEL_MEMORY, str(model.memory_mib))
    if not memory.isdecimal() or not 0 < int(memory) <= 2 * model.memory_mib:
        return _label(LABEL_MEMORY, f"{memory!r} is not the memory of a {model.key} in MiB, such as {model.memory_mib}")
    cut = _instances(node, model, int(count))
    if isinstance(cut, str):
        return cut
    for_mig = enablement(labels).mode == Partitioning.MIG and model.mig_capable
    if (for_mig or cut) and not all(profile.starts for profile in model.profiles):
        return _label(LABEL_PRODUCT, f"no placements of {model.key} are published: its agent reports them")
    return tuple(
        Gpu(
            model=model,
            name=_name(labels[LABEL_PRODUCT], model),
            memory_mib=int(memory),
            mig_enabled=for_mig or index in cut,
            layout=cut.get(index, Layout.of(())),
        )
        for index in range(int(count))
    )


def has_gpus(node: Mapping[str, Any]) -> bool:
    """By its labels, or by what a device plugin serves there where nothing labels nodes."""
    labels, capacity = node["metadata"].get("labels") or {}, (node.get("status") or {}).get("capacity") or ()
    return LABEL_COUNT in labels or LABEL_PRODUCT in labels or any(name.startswith(WHOLE) for name in capacity)


def _name(product: str, model: GpuModel) -> str:
    """NVML's name of the labelled product: the label is that name with dashes, and a suffix once it is cut."""
    spelt = {name.replace(" ", "-"): name for name in model.names}
    found = [name for label, name in spelt.items() if product == label or product.startswith(f"{label}-")]
    return max(found, key=len, default=model.names[0])


def _label(name: str, message: str) -> str:
    return f"metadata.labels[{name}]: {message}"


def _instances(node: Mapping[str, Any], model: GpuModel, count: int) -> dict[int, Layout] | str:
    text: str = (node["metadata"].get("annotations") or {}).get(ANNOTATION_INSTANCES, "")
    field = f"metadata.annotations[{ANNOTATION_INSTANCES}]"
    layouts: dict[int, Layout] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        index, _, listed = part.partition("=")
        if not index.strip().isdecimal() or int(index) >= count:
            return f"{field}: {part!r} does not begin with a GPU index from 0 to {count - 1} and ="
        instances = [_instance(entry.strip(), model) for entry in listed.split(",") if entry.strip()]
        wrong = [found for found in instances if isinstance(found, str)]
        layout = Layout.of(found for found in instances if isinstance(found, Instance))
        sentence = wrong[0] if wrong else check_layout(model, layout)
        if sentence:
            return f"{field}: GPU {index.strip()}: {sentence}"
        layouts[int(index)] = layout
    return layouts


def _instance(entry: str, model: GpuModel) -> Instance | str:
    name, _, start = entry.partition("@")
    spec = model.profile(name)
    if spec is None:
        known = ", ".join(profile.name for profile in model.profiles) or "none: it has no MIG"
        return f"{name!r} is not a MIG profile of {model.key} ({known})"
    if not start.isdecimal():
        return f"{entry!r} needs a start, such as {spec.name}@{spec.starts[0]}"
    return Instance(start=int(start), size=spec.size, profile=spec.name)
