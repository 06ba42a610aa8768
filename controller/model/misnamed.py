"""Finds the partition whose name a mistyped resource name was probably meant to be.

Compares it with the names of all known MIG profiles and, for a name with a number, with the MPS slice of so many GB.
Compares names only: whether a GPU can have the partition is not checked here.
"""

import re
from difflib import get_close_matches
from functools import lru_cache

from controller.model.demand import is_partition
from partitioning.models import known_models
from partitioning.resources import WHOLE, mig_resource, mps_resource_gb

_NUMBER = re.compile(r"\d+", re.ASCII)
_STRANGE = {
    re.compile("gpumem|gpucores"): "is HAMi's, and gpuplan does not serve it",
    re.compile(r"\dg\.0gb"): "is a profile of Jetson Thor, whose MIG gpuplan does not serve",
}
"""Right names of something else."""
_LEAST_LIKENESS = 0.6


def about_misnamed(resource: str) -> str:
    """The message for the owner of a pod that requests it."""
    for pattern, what in _STRANGE.items():
        if pattern.search(resource):
            return f"{resource} {what}. Request an MPS slice as nvidia.com/gpu-<N>gb, or a whole GPU."
    meant = nearest_name(resource)
    if meant:
        return f"{resource} names no partition. Did you mean {meant}?"
    return (
        f"{resource} names no partition. Request a MIG instance as nvidia.com/mig-<profile>, such as "
        "nvidia.com/mig-1g.10gb, or an MPS slice as nvidia.com/gpu-<N>gb."
    )


@lru_cache(maxsize=1024)
def nearest_name(resource: str) -> str:
    """The most similar name of a partition; '' where none is similar."""
    unshared = resource.removesuffix(".shared")  # a suffix of NVIDIA's plugin for sharing in time
    if is_partition(unshared):
        return unshared
    number = _NUMBER.search(resource)
    gigabytes = [mps_resource_gb(int(number[0]))] if number is not None and int(number[0]) else []
    known = {name.rpartition("/")[2]: name for name in (WHOLE, *_mig_names(), *gigabytes)}
    found = get_close_matches(unshared.rpartition("/")[2].lower(), known, n=1, cutoff=_LEAST_LIKENESS)
    return known[found[0]] if found else ""


@lru_cache(maxsize=1)
def _mig_names() -> tuple[str, ...]:
    return tuple(sorted({mig_resource(spec.name) for model in known_models() for spec in model.profiles}))
