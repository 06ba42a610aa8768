"""Would kube-scheduler put this pod on this node? Its Filter semantics as pure functions.

In go views and what is requested on the node already, out comes `FIT` or a Misfit with the failing plugin's name and
kube-scheduler's own words. Simulated: NodeUnschedulable, NodeName, TaintToleration, NodeAffinity, NodePorts and
NodeResourcesFit, in this order, with nominated pods counted by the caller (`Usage.with_nominated`). Topology spread,
inter-pod affinity and volumes are not simulated yet: a pod that only they keep off a node is told that it fits.
"""

from controller.simulator.filters import FIT, Fit, Misfit, Verdict, filter_node, filter_pod, filter_room
from controller.simulator.selectors import matches_node, tolerates, untolerated
from controller.simulator.usage import Usage, usage_by_node

__all__ = [
    "FIT",
    "Fit",
    "Misfit",
    "Usage",
    "Verdict",
    "filter_node",
    "filter_pod",
    "filter_room",
    "matches_node",
    "tolerates",
    "untolerated",
    "usage_by_node",
]
