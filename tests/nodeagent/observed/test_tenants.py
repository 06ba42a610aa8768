"""What tenants can keep from being changed on a node by pretending to hold a GPU, and what NVIDIA's own pods keep.

`pytest -s` prints the table. The agent reads no variable of a pod, and opens no file of a container: what is in there
can neither freeze a node nor hold up a pass.
"""

import sys
from collections.abc import Callable

import pytest

from tests.builders.objects import container
from tests.drawn import points
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import Raw, operator_pod, pod_json, started
from tests.nodeagent.world import World

HALVES = ("3g.40gb", 0), ("3g.40gb", 4)
NOTHING, ITS_OWN, THE_NODE = "nothing", "what it holds", "the node"
KEPT = {"7g.80gb at 0, 7g.80gb at 0": NOTHING, "3g.40gb at 0, 7g.80gb at 0": ITS_OWN}
Attempt = Callable[[World], object]


def tenant(world: World, spec: Raw | None = None, status: Raw | None = None, *, listed: bool = True) -> None:
    """A pod without a GPU, of which the kubelet knows unless `listed` is False."""
    key = ("default", "tenant")
    raw = pod_json(key, "cpu", 1, uid="uid-t")
    raw["spec"].update(spec or {})
    world.pods[key] = {**raw, "status": status or started()}
    if listed:
        world.kubelet.known.add(key)
        world.kubelet.held[key] = {}


def first(world: World) -> str:
    uuid = world.gpu().instances[0].uuid
    assert uuid
    return uuid


def variable(world: World) -> None:
    every = ",".join(i.uuid or "" for i in world.gpu().instances)
    containers = [
        container(f"c{n}", {}, env={"NVIDIA_VISIBLE_DEVICES": value}) for n, value in enumerate(("all", every))
    ]
    tenant(world, {"containers": containers})


def files(world: World) -> None:
    """Device nodes that it made, links to those of others, a mount that hangs: volumes and commands show no more."""
    volumes = [{"name": "v", "nfs": {"server": "192.0.2.1", "path": "/"}}, {"name": "w", "emptyDir": {}}]
    commands = ["mknod /w/nvidia0 c 195 0", "ln -s /proc/1/root/dev/nvidia0 /w/nvidia1"]
    tenant(world, {"volumes": volumes, "containers": [container("main", {}, command=["sh", "-c", *commands])]})


def invented_claim(world: World) -> None:
    """It is in no record, whatever the API has of it."""
    tenant(world, {"resourceClaims": [{"name": "gpu", "resourceClaimName": "invented"}]})


def bound_by_hand(world: World) -> None:
    """The kubelet has never admitted it."""
    claims = [{"name": "gpu", "resourceClaimName": "of-another-pod"}]
    tenant(world, {"resourceClaims": claims}, {"phase": "Pending"}, listed=False)


def bound_by_hand_and_refused(world: World) -> None:
    limits = {THREE: "2"}
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed", "startTime": "t"}
    tenant(world, {"containers": [container("main", limits)]}, status, listed=False)


def bound_by_hand_and_not_judged(world: World) -> None:
    """The kubelet may have admitted it since it listed its pods."""
    tenant(world, {"containers": [container("main", {THREE: "2"})]}, {"phase": "Pending"}, listed=False)


def admitted_without_a_device(world: World) -> None:
    """As by a kubelet to which no plugin has registered that resource; one that lost its memory lists it alike."""
    tenant(world, {"containers": [container("main", {THREE: "1"})]})


def reported_ids(world: World) -> None:
    """Of a resource that is no GPU's, in a status which only the kubelet writes."""
    device = {"resourceID": "nvidia0", "health": "Healthy"}
    status = started()
    status["containerStatuses"][0] = {
        **status["containerStatuses"][0],
        "allocatedResourcesStatus": [{"name": "example.com/nic", "resources": [device]}],
    }
    tenant(world, None, status)


ATTEMPTS: dict[str, tuple[Attempt, str]] = {
    "names all devices in NVIDIA_VISIBLE_DEVICES": (variable, NOTHING),
    "makes device nodes and links, and mounts what hangs": (files, NOTHING),
    "refers to a claim that it invented": (invented_claim, NOTHING),
    "sets its node by hand": (bound_by_hand, NOTHING),
    "sets its node by hand, and is refused": (bound_by_hand_and_refused, NOTHING),
    "sets its node by hand, and is not judged yet": (bound_by_hand_and_not_judged, THE_NODE),
    "is admitted without what it requests": (admitted_without_a_device, THE_NODE),
    "has devices of another resource": (reported_ids, NOTHING),
    "holds a claim": (lambda w: w.pod_of_claim("gpu-0-mig-3g40gb-9-0", first(w), "List"), ITS_OWN),
    "holds a device of another plugin": (lambda w: w.pod_of_other_plugin(THREE, f"{first(w)}::0", first(w)), ITS_OWN),
    "holds one whose id names nothing": (lambda w: w.pod_of_other_plugin(THREE, "0:1", first(w)), THE_NODE),
}


@pytest.mark.parametrize("attempt", points([*ATTEMPTS], each=2))
def test_what_a_tenant_keeps_from_being_changed(make_world: MakeWorld, attempt: str) -> None:
    act, kept = ATTEMPTS[attempt]
    world = make_world(cut(*HALVES), cut(*HALVES))
    world.settle(4)
    act(world)
    replace_everything(world)
    found = KEPT.get(f"{world.layout()}, {world.layout(1)}", THE_NODE)
    print(f"\na pod that {attempt} keeps {found}", end="")
    assert found == kept


def replace_everything(world: World) -> None:
    replace_both(world)
    assert world.plan is not None
    (item,) = world.plan["spec"]["gpus"]
    world.apply(item, {**item, "index": 1})
    world.settle(20)


def test_a_pass_opens_no_file_of_a_container(make_world: MakeWorld) -> None:
    world = make_world(cut(*HALVES))
    opened: list[str] = []
    watching = True

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event in ("open", "os.listdir", "os.scandir"):
            opened.append(str(arguments[0]))

    sys.addaudithook(note)
    variable(world)
    world.settle(6)
    watching = False
    assert any(str(world.state.plugin.directory) in path for path in opened), "it sees what is opened"
    assert [path for path in opened if "/root" in path and path.startswith("/proc") and "/proc/1/" not in path] == []


def daemon(name: str, *containers: Raw, **spec: object) -> Raw:
    raw = operator_pod(name, {"app": name}, "/var/lib/kubelet/pod-resources")
    raw["spec"].update({"containers": list(containers), **spec})
    return raw


PRIVILEGED: Raw = {"securityContext": {"privileged": True}}
ALL: Raw = {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}
OPERATORS = [
    daemon("nvidia-dcgm-exporter", container("exporter", {}, **ALL)),
    daemon("nvidia-dcgm", container("nvidia-dcgm-ctr", {}, **ALL)),
    daemon("gpu-feature-discovery", container("gpu-feature-discovery", {}, **ALL, **PRIVILEGED)),
    daemon("nvidia-operator-validator", container("nvidia-operator-validator", {}, **ALL, **PRIVILEGED)),
    daemon("nvidia-container-toolkit-daemonset", container("toolkit", {}, **ALL, **PRIVILEGED), hostPID=True),
    daemon("nvidia-driver-daemonset", container("nvidia-driver-ctr", {}, **PRIVILEGED), hostPID=True),
]
"""As the GPU Operator deploys them: with the nodes of all GPUs, and without a request."""


def test_the_operators_daemons_keep_no_node_from_being_cut(make_world: MakeWorld) -> None:
    world = make_world(cut(*HALVES), cut(*HALVES))
    for raw in OPERATORS:
        key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        world.pods[key] = raw
        world.kubelet.known.add(key)
        world.kubelet.held[key] = {"main": {}}
    world.settle(4)
    # These pods have no processes here, so that a new agent waits before it believes that nothing was left behind.
    world.wait(61)
    replace_everything(world)
    assert [world.layout(index) for index in (0, 1)] == ["7g.80gb at 0"] * 2
    assert world.found() == ("Ready", "Confirmed")
