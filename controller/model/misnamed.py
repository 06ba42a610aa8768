"""Finds the partition whose name a mistyped resource name was probably meant to be.

Compares it with the names of the MIG profiles that the cluster's GPUs have, of all known ones where that is not known,
and, for a name with a number, with the MPS slice of so many GB. Whether a node is there for that is not checked here.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache

from controller.model.demand import is_partition
from controller.model.views import PlanView
from partitioning.models import known_models
from partitioning.resources import WHOLE, mig_resource, mps_resource_gb

_NUMBER = re.compile(r"\d+", re.ASCII)
_STRANGE = {
    re.compile("gpumem|gpucores"): "is HAMi's, and gpuplan does not serve it",
    re.compile(r"\dg\.0gb"): "is a profile of Jetson Thor, whose MIG gpuplan does not serve",
}
"""Right names of something else."""
_LEAST_LIKENESS = 0.6


def mig_names(plans: Iterable[PlanView]) -> frozenset[str]:
    """Of the MIG instances that GPUs of these nodes can have."""
    models = {gpu.model for plan in plans for gpu in plan.gpus if gpu.model is not None}
    return frozenset(mig_resource(spec.name) for model in models for spec in model.profiles if spec.starts)


def about_misnamed(resource: str, offered: frozenset[str] = frozenset()) -> str:
    """The message for the owner of a pod that requests it. `offered`: MIG instances of the cluster's GPUs, if known."""
    for pattern, what in _STRANGE.items():
        if pattern.search(resource):
            return f"{resource} {what}. Request an MPS slice as nvidia.com/gpu-<N>gb, or a whole GPU."
    meant = nearest_name(resource, offered)
    if meant:
        return f"{resource} names no partition. Did you mean {meant}?"
    return (
        f"{resource} names no partition. Request a MIG instance as nvidia.com/mig-<profile>, such as "
        f"{min(offered, default='nvidia.com/mig-1g.10gb')}, or an MPS slice as nvidia.com/gpu-<N>gb."
    )


@lru_cache(maxsize=1024)
def nearest_name(resource: str, offered: frozenset[str] = frozenset()) -> str:
    """The most similar name of a partition, of MIG instances one that is `offered`; '' where none is similar."""
    unshared = resource.removesuffix(".shared")  # a suffix of NVIDIA's plugin for sharing in time
    if is_partition(unshared):
        return unshared
    number = _NUMBER.search(resource)
    gigabytes = [mps_resource_gb(int(number[0]))] if number is not None and int(number[0]) else []
    known = {name.rpartition("/")[2]: name for name in (WHOLE, *(sorted(offered) or _mig_names()), *gigabytes)}
    typed = unshared.rpartition("/")[2].lower()
    found = get_close_matches(typed, known, n=5, cutoff=_LEAST_LIKENESS)
    # Of similar ones first those of the kind and of the size.
    found.sort(key=lambda name: (name[:3] != typed[:3], _NUMBER.findall(name)[-1:] != _NUMBER.findall(typed)[-1:]))
    return known[found[0]] if found else ""


@lru_cache(maxsize=1)
def _mig_names() -> tuple[str, ...]:
    return tuple(sorted({mig_resource(spec.name) for model in known_models() for spec in model.profiles}))
