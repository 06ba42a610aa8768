"""Predicts whether kube-scheduler would put a pod on a node: its Filter semantics as pure functions.

Takes views and what is requested on the node already, and returns `FIT` or a Misfit with the failing plugin's name and
kube-scheduler's own words, by the rules of one profile of its configuration. `filter_node` and `filter_room` judge one
pod and one node. `ClusterState` judges all of it, with topology spread, inter-pod affinity and volumes, and is kept up
to date while pods are placed one after the other. What cannot be known passes, and is named as unknown.
"""

from controller.simulator.affinity import NOT_ATTRACTED, selects_itself
from controller.simulator.attempts import TOO_MUCH, Attempt
from controller.simulator.cluster import ClusterState
from controller.simulator.filters import compared, fails_always, filter_node, filter_pod, filter_room
from controller.simulator.relabel import RELABELLED, expected_after
from controller.simulator.selectors import matches_node, named_nodes, selects, tolerates, tried_on_each, untolerated
from controller.simulator.spread import SKEWED
from controller.simulator.terms import labels_of
from controller.simulator.usage import Usage
from controller.simulator.verdicts import FIT, Fit, Misfit, Verdict, misfit
from controller.simulator.volumes import VOLUME_FILTERS, VolumeState, settled_refusal, settled_volumes

__all__ = [
    "FIT",
    "NOT_ATTRACTED",
    "RELABELLED",
    "SKEWED",
    "TOO_MUCH",
    "VOLUME_FILTERS",
    "Attempt",
    "ClusterState",
    "Fit",
    "Misfit",
    "Usage",
    "Verdict",
    "VolumeState",
    "compared",
    "expected_after",
    "fails_always",
    "filter_node",
    "filter_pod",
    "filter_room",
    "labels_of",
    "matches_node",
    "misfit",
    "named_nodes",
    "selects",
    "selects_itself",
    "settled_refusal",
    "settled_volumes",
    "tolerates",
    "tried_on_each",
    "untolerated",
]
