"""Sets up the simulator of a pass: what surrounds the pending pods whose place depends on other pods.

Takes a snapshot, returns a ClusterState with every pod that holds a place by now, or None where no pod needs one. Never
judges a pod.
"""

from collections.abc import Sequence

from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions, PodView
from controller.planner.effort import OWN_VISITS
from controller.planner.inventory.node_groups import IGNORED_TAINTS
from controller.simulator.cluster import ClusterState
from controller.simulator.filters import fails_always


def cluster_of(snapshot: Snapshot, options: PlannerOptions, pending: Sequence[PodView]) -> ClusterState | None:
    """None where no pod depends on others or has volumes, which is the common case and costs nothing then."""
    bound = (*snapshot.pods, *snapshot.other_pods)
    needed = (
        any(pod.affinity or pod.anti_affinity or pod.volumes for pod in pending)
        or any(constraint.hard for pod in pending for constraint in pod.spread)
        or any(profile.default_spread or fails_always(profile) for profile in options.profiles.values())
        or any(pod.anti_affinity for pod in bound)
    )
    if not needed:
        return None
    cluster = ClusterState(
        (*snapshot.nodes, *snapshot.other_nodes),
        bound,
        context=snapshot.context,
        profiles=options.profiles,
        ignored_taints=IGNORED_TAINTS,
        most_visits=OWN_VISITS,
    )
    for pod in snapshot.pending:
        if pod.nominated_node and not pod.nomination_ours and not pod.deleting:
            cluster.add_pod(pod, pod.nominated_node)  # its scheduler is evicting pods for it there
    return cluster
