"""The pods of the world: bound, admitted by the kubelet, running, replaced, deleted by force.

`pods` is what the API holds and `running` the truth about containers; the kubelet's part is in `KubeletMemory`. A pod's
process is listed by the driver until its container ends, unless the driver is made blind to it.
"""

from collections.abc import Collection, Iterable
from pathlib import Path

from nodeagent.hardware.gpu_ids import KNOWN
from nodeagent.observed.kubelet import CheckpointEntry, NoAnswer
from nodeagent.observed.processes import DeviceNumber, Process, Processes, ProcessTable
from sandbox.driver import processes
from tests.clock import Clock
from tests.nodeagent.items import Raw, pod_json, started
from tests.nodeagent.node_fakes import KubeletMemory, PluginMemory
from tests.nodeagent.proc_tree import ProcTree


def uid_of(number: int) -> str:
    """As the API server makes them, but in order."""
    return f"00000000-0000-4000-8000-{number:012}"


class RunningIds(tuple[str, ...]):
    """The devices of one pod's container, whose it is, since several pods may have the same ones, and when it began."""

    uid: str
    began: float

    @classmethod
    def of(cls, uid: str, ids: Iterable[str], began: float) -> "RunningIds":
        made = cls(ids)
        made.uid, made.began = uid, began
        return made


class PodsMemory:
    """Keys are namespace and name."""

    def __init__(self, machine: Path, kubelet: KubeletMemory, plugin: PluginMemory, clock: Clock) -> None:
        self.machine, self.kubelet, self.plugin, self.clock = machine, kubelet, plugin, clock
        self.pods: dict[tuple[str, str], Raw] = {}
        self.running: dict[tuple[str, str], tuple[str, ...]] = {}
        """Truth: devices of containers that run, whatever API and kubelet show."""
        self.waiting: dict[tuple[str, str], tuple[str, ...]] = {}
        """Pods that were admitted, and that PreStartContainer keeps from starting."""
        self.bound = 0
        self._pids: dict[tuple[str, str], int] = {}
        self.tree = ProcTree(machine.with_name("proc"))
        self.tree.start(1, program="systemd", files=())
        self._shown: dict[str, int] = {}
        """Process of each container, by UID of its pod."""

    def pod(self, resource: str, name: str = "", count: int = 1, *, device: str = "") -> tuple[str, str]:
        """Bind a pod, let the kubelet admit it, and start its container if it may; the id is the first that fits."""
        return self.admit(self.bind(resource, name, count), resource, count, device=device)

    def bind(self, resource: str, name: str = "", count: int = 1) -> tuple[str, str]:
        """As the scheduler does: the API shows it on the node, and the kubelet has not seen it."""
        self.bound += 1
        key = ("default", name or f"p{self.bound}")
        self.pods[key] = pod_json(key, resource, count, uid=uid_of(self.bound))
        return key

    def admit(self, key: tuple[str, str], resource: str, count: int = 1, *, device: str = "") -> tuple[str, str]:
        """As the kubelet does with a pod that is bound to its node."""
        uid = self.pods[key]["metadata"]["uid"]
        taken = self.kubelet.given()
        free = [i for i in self.kubelet.devices.get(resource, ()) if i not in taken and (not device or i == device)]
        self.kubelet.known.add(key)
        ids = tuple(free[:count])
        if len(ids) < count or not all(self.plugin.allocate(i, resource, self.clock.now) for i in ids):
            self.kubelet.known.discard(key)
            message = f"Pod was rejected: Allocate failed due to requested number of devices unavailable for {resource}"
            self.pods[key]["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message}
            return key
        self.kubelet.held[key] = {"main": {resource: ids}}
        # What it gives away it has dropped from its record.
        others = tuple(entry for entry in self.kubelet.entries if not set(entry.ids).intersection(ids))
        self.kubelet.entries = (*others, CheckpointEntry(pod_uid=uid, ids=ids))
        self.pods[key]["status"] = {**started("Pending"), "containerStatuses": [{"state": {"waiting": {}}}]}
        self.waiting[key] = ids
        self.start_waiting()
        return key

    def start_waiting(self) -> None:
        """The kubelet tries those again that wait; that two containers have one device fails the test."""
        for key, ids in tuple(self.waiting.items()):
            if key not in self.pods or key not in self.kubelet.known:
                del self.waiting[key]
            elif all(self._may_start(key, i) for i in ids):
                both = sorted(other for other, found in self.running.items() if set(found).intersection(ids))
                assert not both, f"{key} starts with {ids}, which {both} use"
                self.start_container(key)

    def _may_start(self, key: tuple[str, str], device_id: str) -> bool:
        resource = next(iter(self.kubelet.held[key].get("main", ())), "")
        return self.plugin.starts(device_id, resource, self.pods[key]["metadata"]["uid"], self.clock.now)

    def start_container(self, key: tuple[str, str]) -> None:
        """Start a container that waits, whatever PreStartContainer says."""
        uid, ids = self.pods[key]["metadata"]["uid"], self.waiting.pop(key)
        self.pods[key]["status"] = started()
        self.running[key] = RunningIds.of(uid, ids, self.clock.now)
        self._pids[key] = 1000 + int(uid[-12:])
        for device_id in ids:
            if "::" not in device_id:
                processes.attach(self.machine, device_id, self._pids[key], 1)

    def recreate(self, key: tuple[str, str]) -> tuple[str, str]:
        """Force deletion, and at once a pod of the same name with another device, while the first one's container runs.

        Returns where that container is found in `running`.
        """
        uid = self.pods[key]["metadata"]["uid"]
        ((resource, ids),) = self.kubelet.held[key]["main"].items()
        self.force_delete(key, seen_by_driver=False)
        first = ("gone", uid)
        self.running[first] = self.running.pop(key)
        taken = self.kubelet.given().union(ids)
        others = [i for i in self.kubelet.devices.get(resource, ()) if i not in taken]
        if others:
            self.pod(resource, key[1], device=others[0])
        return first

    def pod_of_other_plugin(self, resource: str, device_id: str, device: str, name: str = "") -> tuple[str, str]:
        """A running pod that got `device` as `device_id`: no process is on it, and our plugin does not know it."""
        self.bound += 1
        key = ("default", name or f"p{self.bound}")
        self.pods[key] = pod_json(key, resource, 1, uid=uid_of(self.bound))
        self.pods[key]["status"] = started()
        self.kubelet.known.add(key)
        self.kubelet.held[key] = {"main": {resource: (device_id,)}}
        if KNOWN.concerns(resource, device_id):
            self.kubelet.entries += (CheckpointEntry(pod_uid=uid_of(self.bound), ids=(device_id,)),)
        self.running[key] = RunningIds.of(uid_of(self.bound), [device], self.clock.now)
        return key

    def pod_of_claim(self, name: str, device: str, *shown: str) -> tuple[str, str]:
        """A running pod that holds `device` by a claim of NVIDIA's DRA driver, which calls it `name`.

        `shown` is where: in the kubelet's "List", in its "record", in the "driver's record" with the UUID.
        """
        self.bound += 1
        key = ("default", f"claim-{self.bound}")
        raw = pod_json(key, "cpu", 1, uid=uid_of(self.bound))
        raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": key[1]}]
        self.pods[key] = {**raw, "status": started()}
        self.kubelet.known.add(key)
        named = f"gpu.nvidia.com/{name}"
        if "List" in shown:
            self.kubelet.held[key] = {"main": {"gpu.nvidia.com": (named,)}}
        for where, device_id in (("record", named), ("driver's record", f"{named} {device}")):
            if where in shown:
                self.kubelet.entries += (CheckpointEntry(pod_uid=uid_of(self.bound), ids=(device_id,)),)
        self.running[key] = RunningIds.of(uid_of(self.bound), [device], self.clock.now)
        return key

    def scan(self) -> ProcessTable | NoAnswer:
        """What the agent sees of the containers that run."""
        runs = {ids.uid: ids.began for ids in self.running.values() if isinstance(ids, RunningIds)}
        for uid in self._shown.keys() - runs.keys():
            self.tree.end(self._shown.pop(uid))
        for uid in sorted(runs.keys() - self._shown.keys()):
            self._shown[uid] = 5000 + int(uid[-12:])
            self.tree.start(self._shown[uid], uid, files=(), began_seconds=runs[uid] + 0.5)
        return Processes(self.tree.root).scan()

    def hide_processes(self) -> None:
        """What runs now has none in a cgroup of its pod."""
        self.running = {key: tuple(ids) for key, ids in self.running.items()}

    def holders(self, numbers: Collection[DeviceNumber]) -> tuple[Process, ...] | NoAnswer:
        """Those with one of the devices open."""
        return Processes(self.tree.root).holders(numbers)

    def finish(self, key: tuple[str, str]) -> None:
        """The container ends, the kubelet frees its devices, the pod is Succeeded."""
        self.end_container(key)
        self.forget(key)
        self.pods[key]["status"] = {"phase": "Succeeded", "startTime": "t"}

    def forget(self, key: tuple[str, str]) -> None:
        """The kubelet drops the pod from its List and gives its devices away."""
        self.kubelet.known.discard(key)
        self.kubelet.held.pop(key, None)

    def force_delete(self, key: tuple[str, str], *, seen_by_driver: bool = True) -> None:
        """Gone from API and List at once, while the container runs on."""
        self.forget(key)
        uid = self.pods.pop(key)["metadata"]["uid"]
        self.kubelet.entries = tuple(entry for entry in self.kubelet.entries if entry.pod_uid != uid)
        if not seen_by_driver:
            self.detach(key)

    def end_container(self, key: tuple[str, str]) -> None:
        """The container ends, whether its pod still exists or not."""
        self.detach(key)
        self.running.pop(key, None)

    def pid(self, key: tuple[str, str]) -> int:
        return self._pids[key]

    def detach(self, key: tuple[str, str]) -> None:
        """From now on the driver does not show its process."""
        if key in self._pids:
            processes.detach(self.machine, self._pids.pop(key))
