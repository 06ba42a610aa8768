"""Reads from a node's labels whether it is enabled, and whether agent and device plugin must leave it.

Takes the labels of a Node, returns an `Enablement`. Controller and agent use this one reading, so that none of them
believes a node to be enabled that the other one takes for disabled. Writes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from crds.v1alpha1 import names

MODES = tuple(names.Partitioning)
FOREIGN_MODES = (names.Partitioning.MIG, names.Partitioning.MPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enablement:
    """What a node's labels request: `mode` is None where it is not enabled; `warning` is for the node's owner."""

    mode: str | None
    warning: str = ""

    @property
    def ended(self) -> bool:
        """No label requests anything. Labels that are not understood, or disagree, are no request to leave."""
        return self.mode is None and not self.warning


def disabled(labels: Mapping[str, str]) -> bool:
    """The node was enabled, is not any more, and agent and device plugin are still on it."""
    return labels.get(names.LABEL_NODE_AGENT) == "true" and enablement(labels).ended


def enablement(labels: Mapping[str, str]) -> Enablement:
    """Our label wins; of the labels of other systems those that name a mode we know count, if they agree."""
    ours = labels.get(names.LABEL_PARTITIONING)
    foreign = {
        label: labels[label] for label in names.FOREIGN_PARTITIONING_LABELS if labels.get(label) in FOREIGN_MODES
    }
    others = ", ".join(f"{label}={value}" for label, value in foreign.items())
    if ours is not None:
        if ours not in MODES:
            return Enablement(
                mode=None,
                warning=f"label {names.LABEL_PARTITIONING}={ours} is not understood: use one of {', '.join(MODES)}",
            )
        rivals = any(value != ours for value in foreign.values())
        return Enablement(
            mode=ours, warning=f"label {names.LABEL_PARTITIONING}={ours} is followed, not {others}" if rivals else ""
        )
    if len(set(foreign.values())) > 1:
        return Enablement(mode=None, warning=f"labels {others} disagree: set {names.LABEL_PARTITIONING} to choose one")
    return Enablement(mode=next(iter(foreign.values()), None))
