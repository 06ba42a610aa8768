"""The pieces of nos' test cases: cards, pods and counts, in the short words of the file.

Takes fields of a case, returns cards and pending pods; raises ImpossibleError where no real hardware is named. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.nos.cluster import Card, Counts, ImpossibleError, card_model, pending_pod, resource_of
from benchmarks.nos.counts import counts_of, slice_name, whole_number
from benchmarks.nos.expected import Pool
from controller.api.pod_requests import amount
from controller.model.views import PodView
from partitioning.models import GpuModel
from partitioning.mps import RESERVE_MIB
from partitioning.resources import profile_of_resource

MIB_PER_NOS_GB = 1000
"""nos reads the memory label, which is in MiB, as thousands."""
ANY_CARD = "NVIDIA-A100-SXM4-40GB"
"""The card of an MPS case that names none: only its memory counts, and that the case gives."""
_OTHER_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_PROFILE = re.compile(r"\d+g\.\d+gb(?:\+[a-z.]+)?")

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What holds for a whole case."""

    kind: str
    spellings: frozenset[str]
    """The profiles in it, which go by the names that it uses."""


def profiles_in(part: object) -> Iterator[str]:
    """MIG profiles in the keys of a case, those of status keys included."""
    if isinstance(part, Mapping):
        for key, value in part.items():
            yield from _PROFILE.findall(str(key))
            yield from profiles_in(value)
    elif isinstance(part, list):
        for value in part:
            yield from profiles_in(value)


def model_of_gpu(form: Form, gpu: Raw) -> GpuModel:
    memory_gb = gpu.get("memory_gb")
    if memory_gb is None:
        return model_of(form, gpu.get("model"), gpu.get("memory"))
    memory_mib = whole_number(memory_gb, "memory_gb") * MIB_PER_NOS_GB + RESERVE_MIB  # nos reserves none
    return model_of(form, gpu.get("model"), memory_mib)


def model_of(form: Form, name: str | None, memory_mib: int | str | None) -> GpuModel:
    """A MIG case must name a real card; one for MPS may name none, as long as its memory is known."""
    if name is None and (form.kind == "mig" or memory_mib is None):
        raise ImpossibleError("it names no GPU model")
    model = card_model(name or ANY_CARD, form.spellings)
    if form.kind == "mig" and not model.mig_capable:
        raise ImpossibleError(f"{name} has no MIG")
    if memory_mib is None or form.kind == "mig":
        return model
    return replace(model, memory_mib=whole_number(memory_mib, "memory"))


def card_of(index: int, model: GpuModel, raw: Raw) -> Card:
    used, free = (counts_of(raw.get(field), f"{field} of GPU {index}") for field in ("used", "free"))
    return Card(index=index, model=model, used=used, free=free)


def pod_of(number: int, raw: Raw | str) -> PodView:
    """`requests` or one mapping per container; where a case has one pod only, the requests themselves; or a name."""
    if isinstance(raw, str):
        raw = {"name": raw}
    bare = not {"name", "requests", "containers"}.intersection(raw)
    parts = raw.get("containers") or [raw if bare else raw.get("requests")]
    requests: dict[str, int] = {}
    for part in parts:
        for name, quantity in (part or {}).items():
            resource = name if name in _OTHER_RESOURCES or "/" in name else resource_of(slice_name(name))
            requests[resource] = requests.get(resource, 0) + amount(resource, quantity)
    title = str(raw.get("name", "pod")).replace("/", "-")
    priority = whole_number(raw.get("priority") or 0, "priority")
    return pending_pod(number, f"{title}-{number}", requests, priority=priority)


def one_each(counts: Counts) -> list[PodView]:
    names = [name for name, count in counts.items() for _ in range(count)]
    return [pending_pod(number, f"wants-{name}-{number}", {resource_of(name): 1}) for number, name in enumerate(names)]


def less(counts: Counts, gone: Counts) -> dict[str, int]:
    """What is left; raises ImpossibleError where more is gone than there was."""
    left = {name: counts.get(name, 0) - gone.get(name, 0) for name in {**counts, **gone}}
    if any(count < 0 for count in left.values()):
        raise ImpossibleError("slices in use would be gone")
    return {name: count for name, count in left.items() if count}


def pool_of(cards: Iterable[Card]) -> Pool:
    pool: dict[str, int] = {}
    for card in cards:
        for name, count in (card.later or {}).items():
            pool[resource_of(name)] = pool.get(resource_of(name), 0) + count
    return pool


def smallest_profile(form: Form, model: GpuModel) -> str:
    if form.kind == "mps":
        return "1gb"
    spec = min(model.profiles, key=lambda spec: (spec.size, spec.compute_slices, spec.name))
    assert profile_of_resource(resource_of(spec.name)) == spec.name
    return spec.name
