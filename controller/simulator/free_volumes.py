"""Matches volumes without a claim to claims that wait for their first consumer, as kube-scheduler does.

Takes a claim and all volumes and returns those that would serve wherever the pod goes, in the order in which the
scheduler takes them: one that is kept for this very claim and no other, else the smallest first. Whether a node reaches
them is checked later, node by node. Pure.
"""

from collections.abc import Mapping

from controller.model.scheduling import ClaimView, VolumeView
from controller.simulator.selectors import selects

Candidates = tuple[tuple[str, VolumeView], ...]
"""Volumes by name."""


def candidates(namespace: str, name: str, claim: ClaimView, volumes: Mapping[str, VolumeView]) -> Candidates:
    """For a claim of this name."""
    kept: list[tuple[str, VolumeView]] = []
    free: list[tuple[str, VolumeView]] = []
    for title, volume in volumes.items():
        if volume.storage_class != claim.storage_class or volume.deleting or not _suffices(volume, claim):
            continue
        if volume.claim is not None:
            if volume.claim in ((namespace, name, claim.uid), (namespace, name, "")):
                kept.append((title, volume))
        elif volume.available and _is_meant(volume, claim):
            free.append((title, volume))
    if kept:
        return (min(kept, key=lambda one: one[0]),)
    return tuple(sorted(free, key=lambda one: (one[1].storage.size, one[0])))


def _suffices(volume: VolumeView, claim: ClaimView) -> bool:
    has, requested = volume.storage, claim.storage
    return (
        has.size >= requested.size
        and has.block == requested.block
        and has.attributes_class == requested.attributes_class
    )


def _is_meant(volume: VolumeView, claim: ClaimView) -> bool:
    if claim.selector is not None and not selects(claim.selector, dict(volume.labels)):
        return False
    return set(claim.storage.modes) <= set(volume.storage.modes)
