"""Getting a pod's devices at its admission: one Allocate per container and resource, in the containers' order.

In: a pod. Out: None once every container holds what its limits ask for, else the `Refusal` that ends up in the pod's
message. Runs in the kubelet's one admission thread and has no deadline: while a plugin thinks, nothing else is
admitted. It never gives back what an earlier container of a refused pod got; that is freed when somebody looks again.
"""

from collections.abc import Callable

from sandbox.kubelet.checkpoint import Checkpoint, CheckpointFile
from sandbox.kubelet.devices import DeviceTable, Holder, Holding
from sandbox.kubelet.endpoints import Endpoints, PluginClient
from sandbox.kubelet.pods import Container, Pod, Role
from sandbox.kubelet.selection import Nothing, Refusal, Wanted

Reusable = dict[str, frozenset[str]]


class Allocator:
    def __init__(
        self,
        *,
        table: DeviceTable,
        endpoints: Endpoints,
        checkpoint: CheckpointFile,
        free_inactive: Callable[[], None],
        pause: Callable[[float], object],
    ) -> None:
        self._table = table
        self._endpoints = endpoints
        self._checkpoint = checkpoint
        self._free_inactive = free_inactive
        self._pause = pause
        self.last_admitted: frozenset[str] = frozenset()
        """UID of the pod whose devices were asked for last, if any."""

    def allocate(self, pod: Pod, already_running: Callable[[str], bool]) -> Refusal | None:
        self.last_admitted = frozenset({pod.uid})
        reusable: Reusable = {}
        for container in pod.containers:
            refusal = self._container(pod, container, reusable, already_running=already_running(container.name))
            if refusal is not None:
                return refusal
            self._account(pod, container, reusable)
        return None

    def _account(self, pod: Pod, container: Container, reusable: Reusable) -> None:
        """A plain init container leaves its devices to later containers; everybody else keeps them."""
        for resource, holding in self._table.holdings_of(pod.uid, container.name).items():
            before = reusable.get(resource, frozenset())
            held = holding.device_ids
            reusable[resource] = before | held if container.role is Role.INIT else before - held

    def _container(
        self, pod: Pod, container: Container, reusable: Reusable, *, already_running: bool
    ) -> Refusal | None:
        looked = False
        allocated = False
        for resource, count in container.devices:
            if not count or not self._table.knows(resource):
                continue
            if not looked:
                self._free_inactive()
                looked = True
            holder = Holder(pod.uid, container.name, resource)
            wanted = self._table.needed(
                holder, count, reusable.get(resource, frozenset()), already_running=already_running
            )
            if isinstance(wanted, Nothing):
                continue
            refusal = wanted if isinstance(wanted, Refusal) else self._call(pod, holder, wanted)
            if refusal is not None:
                return refusal
            allocated = True
        if allocated:
            self.save()
        return None

    def _call(self, pod: Pod, holder: Holder, wanted: Wanted) -> Refusal | None:
        client = self._endpoints.get(holder.resource)
        if client is None:
            return Refusal(f"unknown Device Plugin {holder.resource}")
        preferred = self._preferred(client, wanted)
        if isinstance(preferred, Refusal):
            return preferred
        device_ids = self._table.take(wanted, preferred)
        answer = client.allocate(sorted(device_ids))
        if pod.script.allocate_seconds:
            self._pause(pod.script.allocate_seconds)
        if isinstance(answer, Refusal):
            self._table.give_back()
            return answer
        if not answer.container_responses:
            # As in the kubelet, the ids stay taken until devices of ended pods are freed the next time.
            return Refusal("no containers return in allocation response &AllocateResponse{}")
        self._table.hold(holder, Holding(device_ids, answer.container_responses[0]))
        return None

    @staticmethod
    def _preferred(client: PluginClient, wanted: Wanted) -> list[str] | Refusal:
        if wanted.complete or not client.options.get_preferred_allocation_available:
            return []
        return client.preferred(wanted)

    def save(self) -> None:
        """Write the checkpoint; also after each device update."""
        healthy = self._table.healthy_devices()
        registered = {resource: tuple(device.device_id for device in devices) for resource, devices in healthy.items()}
        self._checkpoint.save(Checkpoint(holdings=self._table.holdings(), registered=registered))
