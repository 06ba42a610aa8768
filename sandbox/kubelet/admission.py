"""Whether a bound pod may run on its node: devices first, then the node's resources.

In: a pod, what else is active, what runs already. Out: None, or a `Rejection`, which is final. Order and texts are
the kubelet's: a pod can be refused by the resource check after its devices were allocated. A pod that asks for a
resource which this kubelet never saw and the node never named is let through without it.
"""

from collections.abc import Callable

from sandbox.kubelet.allocation import Allocator
from sandbox.kubelet.devices import DeviceTable
from sandbox.kubelet.node_status import NodeReading
from sandbox.kubelet.podbook import PodBook
from sandbox.kubelet.pods import Pod
from sandbox.kubelet.predicates import Rejection, check_resources, raised


class Admission:
    def __init__(
        self,
        *,
        allocator: Allocator,
        table: DeviceTable,
        book: PodBook,
        node: Callable[[], NodeReading | None],
    ) -> None:
        self._allocator = allocator
        self._table = table
        self._book = book
        self._node = node

    def decide(self, pod: Pod, already_running: Callable[[str], bool]) -> Rejection | None:
        refusal = self._allocator.allocate(pod, already_running)
        if refusal is not None:
            return Rejection(
                reason="UnexpectedAdmissionError",
                message=f"Allocate failed due to {refusal.message}, which is unexpected",
            )
        node = self._node()
        if node is None:
            return None
        allocatable = node.allocatable
        if any(holder.pod_uid == pod.uid for holder in self._table.holdings()):
            allocatable = raised(allocatable, self._table.taken_counts())
        others = [
            entry.pod.requests for entry in self._book.active() if entry.pod.uid != pod.uid and entry.run is not None
        ]
        return check_resources(pod.requests, others, allocatable)
