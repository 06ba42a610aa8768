"""For each reason of the closed set: a pod gets it on a real control plane, its message is obeyed, and the pod runs.

The sandbox's nodes, with the rights and policies of deploy/. What a person reads is the Event of the pod; what is over
before an Event is due is read from the controller's decisions. What is done is typed: kubectl, or nvidia-smi on the
node.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.model.reasons import UnplacedReason
from crds.v1alpha1 import names
from kube import apply
from sandbox.cluster import Cluster, ClusterSettings
from sandbox.driver import smi
from sandbox.kubelet.settings import Timings
from tests.builders import objects
from tests.builders.objects import Json
from tests.e2e.real_cluster import PLANS
from tests.e2e.recovery import PODS, await_running, conditions, gpu_node
from tests.e2e.rig.controlplane import Binaries, RealControlPlane
from tests.e2e.rig.controlplane.part import Part
from tests.e2e.rig.controlplane.plane import SCHEDULER
from tests.e2e.rig.controlplane.tenants import RealServers
from tests.e2e.runbooks.stage import QuickNode
from tests.waiting import eventually

SECONDS = 120.0
PATIENT = {"agentSilentSeconds": 60, "taintRemovalSeconds": 60}
"""Long enough for a stopped agent not to count as silent while another reason is read."""
ONE, LARGE, MIDDLE = (f"nvidia.com/mig-{name}" for name in ("1g.10gb", "7g.80gb", "3g.40gb"))
GANG = {"kueue.x-k8s.io/pod-group-name": "team"}
SIZE = {"kueue.x-k8s.io/pod-group-total-count": "2"}


class SlowNode(QuickNode):
    """Its containers take as long to end as they may: long enough to see that they are preempted."""

    def _timings(self) -> Timings:
        return Timings(stop_seconds=8.0)


class Stage:
    """A cluster of one node with one H100."""

    def __init__(self, cluster: Cluster, scheduler: Part) -> None:
        self.cluster, self.scheduler = cluster, scheduler

    def kubectl(self, line: str, stdin: str | None = None) -> str:
        program = [str(Path(sys.executable).with_name("kubectl")), "--kubeconfig", str(self.cluster.kubeconfig)]
        done = subprocess.run(
            [*program, *line.split()], input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create(self, raw: Json) -> None:
        self.kubectl("create -f -", yaml.safe_dump(objects.manifest(raw, status=False)))

    def again(self, raw: Json) -> None:
        """The same pod with another request, which no pod that exists can change."""
        self.kubectl(f"delete pod {raw['metadata']['name']} --now")
        self.create(raw)

    def pin(self, gpus: str) -> None:
        """What `spec.gpus` of the plan has; none with `null`."""
        self.patch(f'{{"spec":{{"gpus":{gpus},"paused":null}}}}')
        self.settle()

    def settle(self) -> None:
        def settled() -> bool:
            plan = apply.get(self.cluster.api, f"{PLANS}/one")
            found = conditions(plan).get("Ready", {})
            return (found.get("status"), found.get("observedGeneration")) == ("True", plan["metadata"]["generation"])

        eventually(settled, "the agent has done what the plan has", SECONDS)

    def patch(self, change: str) -> None:
        self.kubectl(f"patch gpp one --type merge -p {change}")

    def nvidia_smi(self, *arguments: str) -> None:
        """On node one, while no process has its GPU open, as docs/operating.md says."""
        self.kubectl(f"label node one {names.LABEL_DRIVER}={names.CLOSED}")
        machine = str(self.cluster.nodes["one"].machine)
        eventually(lambda: smi.main([machine, *arguments]) == 0, "nvidia-smi is not refused", SECONDS)
        self.kubectl(f"label node one {names.LABEL_DRIVER}-")

    def signal_agent(self, number: signal.Signals) -> None:
        pid = self.cluster.supervisor.children[self.cluster.nodes["one"].agent].pid
        assert pid is not None
        os.kill(pid, number)

    def running(self, *pods: str) -> None:
        await_running(self.cluster, *pods)

    def read(self, reason: UnplacedReason) -> str:
        """The sentence that pod `a` gets with this reason."""
        if reason.in_flight or reason.routine:
            entries = (self.cluster.decisions() or {}).get("pods", ())
            found = [one["message"] for one in entries if (one["name"], one["reason"]) == ("a", reason)]
        else:
            found = [message for named, message in self.events() if named == reason]
        return str(found[0]) if found else ""

    def events(self) -> list[tuple[str, str]]:
        """Reasons and messages of the Events about pod `a`, of the present one of that name."""
        uid = apply.get(self.cluster.api, f"{PODS}/a")["metadata"]["uid"]
        events = apply.get(self.cluster.api, "/api/v1/namespaces/default/events")["items"]
        return [(one["reason"], one["message"]) for one in events if one["involvedObject"].get("uid") == uid]

    def clear(self) -> None:
        """No pods, no instances, node one as at first."""
        self.scheduler.signal(signal.SIGCONT)
        self.signal_agent(signal.SIGCONT)
        self.kubectl("uncordon one")
        self.kubectl("delete pods --all --now --wait=false")
        eventually(lambda: not self.cluster.pods(), "the pods to end", SECONDS)
        self.pin('[{"index":0,"mig":{"instances":[]}}]')
        self.pin("null")


@pytest.fixture(scope="module")
def stage(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    servers = RealServers(RealControlPlane(programs, directory=tmp_path_factory.mktemp("plane")))
    cluster = Cluster(ClusterSettings(controller=PATIENT), control_plane=servers, node_type=SlowNode)
    try:
        cluster.start([gpu_node("one", 1)])
        eventually(lambda: len(cluster.plans()) == 1, "a plan for the node", SECONDS)
        found = Stage(cluster, servers.plane.parts[SCHEDULER])
        found.settle()
        found.kubectl("create priorityclass first --value=10")
        yield found
    finally:
        cluster.stop()


def pod(name: str = "a", resource: str = ONE, *, metadata: Json | None = None, cpu: str = "1", **spec: Any) -> Json:
    main = objects.container(limits={resource: 1, "cpu": cpu}, sleep="infinity")
    return objects.pod(name, containers=[main], metadata=metadata, **{"terminationGracePeriodSeconds": 1, **spec})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`remedy` is obeyed by `done`."""

    before: Callable[[Stage], object] = lambda _: None
    waits: Json
    then: Callable[[Stage], object] = lambda _: None
    remedy: str
    done: Callable[[Stage], object]


def _split(stage: Stage) -> None:
    stage.pin('[{"index":0,"mig":{"instances":[{"profile":"1g.10gb","start":1},{"profile":"1g.10gb","start":5}]}}]')
    for name in ("left", "right"):
        stage.create(pod(name))
    stage.running("left", "right")
    stage.pin("null")


def _hold(stage: Stage, name: str = "holder", **fields: Any) -> None:
    stage.create(pod(name, **fields))
    stage.running(name)


def _mig_off(stage: Stage) -> None:
    stage.nvidia_smi("-i", "0", "-mig", "0")


def _first(stage: Stage) -> None:
    stage.patch('{"spec":{"paused":true}}')
    stage.create(pod("first", LARGE, priorityClassName="first"))


def _both_at_once(stage: Stage) -> None:
    """Stops the scheduler: it could give the GPU to pod `a`, and take it away again for pod `first`."""
    eventually(lambda: stage.read(UnplacedReason.BLOCKED), "both wait for the paused plan", SECONDS)
    stage.scheduler.signal(signal.SIGSTOP)
    stage.patch('{"spec":{"paused":null}}')


def _add_node(stage: Stage) -> None:
    def nominated() -> bool:
        return bool(apply.get(stage.cluster.api, f"{PODS}/first")["status"].get("nominatedNodeName"))

    eventually(nominated, "pod `first` has its node", SECONDS)
    stage.scheduler.signal(signal.SIGCONT)
    stage.running("first")
    stage.cluster.create(gpu_node("two", 1))


def _change(stage: Stage) -> None:
    stage.signal_agent(signal.SIGSTOP)
    generation = apply.get(stage.cluster.api, f"{PLANS}/one")["metadata"]["generation"]
    stage.create(pod("earlier"))

    def planned() -> bool:
        plan = apply.get(stage.cluster.api, f"{PLANS}/one")
        return plan["metadata"]["generation"] > generation and "1g.10gb" in str(plan["spec"].get("planned"))

    eventually(planned, "a plan for it", SECONDS)


ROWS = {
    UnplacedReason.NEVER_FITS: Row(
        waits=pod(resource="nvidia.com/mig-1g.10gb.gfx"),
        remedy="mig-1g.10gb, ",
        done=lambda stage: stage.again(pod()),
    ),
    UnplacedReason.NOT_SERVED: Row(
        waits=pod(resource="nvidia.com/mig-1g.10bg"),
        remedy="Did you mean nvidia.com/mig-1g.10gb?",
        done=lambda stage: stage.again(pod()),
    ),
    UnplacedReason.WAITS_FOR_RELEASE: Row(
        before=lambda stage: _hold(stage, resource=LARGE),
        waits=pod(resource=LARGE),
        remedy="The pod starts when enough is released",
        done=lambda stage: stage.kubectl("delete pod holder --now"),
    ),
    UnplacedReason.FRAGMENTED: Row(
        before=_split,
        waits=pod(resource=MIDDLE),
        remedy="not contiguously on one GPU: it needs 4 adjacent memory slices. The pod starts when enough is released",
        done=lambda stage: stage.kubectl("delete pod left --now"),
    ),
    UnplacedReason.NO_NODE_RESOURCES: Row(
        before=lambda stage: _hold(stage, cpu="60"),
        waits=pod(cpu="8"),
        remedy="the pod requests 8 CPUs. Request less",
        done=lambda stage: stage.again(pod(cpu="2")),
    ),
    UnplacedReason.BLOCKED: Row(
        before=lambda stage: stage.patch('{"spec":{"paused":true}}'),
        waits=pod(),
        remedy="(gpupartitionplan/one, spec.paused). Ask the owner of the plan to resume it.",
        done=lambda stage: stage.patch('{"spec":{"paused":null}}'),
    ),
    UnplacedReason.MIG_MODE_DISABLED: Row(
        before=_mig_off,
        waits=pod(),
        remedy="`nvidia-smi -i 0 -mig 1`",
        done=lambda stage: stage.nvidia_smi("-i", "0", "-mig", "1"),
    ),
    UnplacedReason.FILTERED_BY_SCHEDULER: Row(
        before=lambda stage: stage.kubectl("cordon one"),
        waits=pod(),
        remedy="ask an administrator to uncordon",
        done=lambda stage: stage.kubectl("uncordon one"),
    ),
    UnplacedReason.GANG_WAITS: Row(
        waits=pod(metadata={"labels": GANG, "annotations": SIZE}),
        remedy="has 1 of the 2 pods that it needs to start. It is planned when all exist.",
        done=lambda stage: stage.create(pod("b", metadata={"labels": GANG, "annotations": SIZE})),
    ),
    UnplacedReason.SCHEDULING_GATED: Row(
        waits=pod(schedulingGates=[{"name": "example.com/quota"}]),
        remedy="Waiting for its scheduling gates (example.com/quota) to be removed.",
        done=lambda stage: stage.kubectl('patch pod a --type json -p [{"op":"remove","path":"/spec/schedulingGates"}]'),
    ),
    UnplacedReason.PREEMPTING: Row(
        before=lambda stage: _hold(stage, resource=LARGE, terminationGracePeriodSeconds=10),
        waits=pod(resource=LARGE, priorityClassName="first"),
        remedy="Wait",
        done=lambda _: None,
    ),
    UnplacedReason.CHANGE_UNDER_WAY: Row(
        before=_change,
        waits=pod(resource=MIDDLE),
        remedy="This pod will be reconsidered when that is done.",
        done=lambda stage: stage.signal_agent(signal.SIGCONT),
    ),
    UnplacedReason.AWAITING_AGENT: Row(
        before=lambda stage: stage.signal_agent(signal.SIGSTOP),
        waits=pod(),
        remedy="The node agent on node one has stopped responding. Ask an administrator to check the agent's pod.",
        done=lambda stage: stage.signal_agent(signal.SIGKILL),  # its supervisor starts it again, as the kubelet would
    ),
    UnplacedReason.NO_CAPACITY: Row(  # the last: it leaves a second node
        before=_first,
        waits=pod(resource=LARGE),
        then=_both_at_once,
        remedy="Wait, or add a GPU node.",
        done=_add_node,
    ),
}


def test_every_reason_has_a_row() -> None:
    assert set(ROWS) == set(UnplacedReason)


@pytest.mark.parametrize("reason", ROWS)
def test_the_remedy_of_the_message_makes_the_pod_run(stage: Stage, reason: UnplacedReason) -> None:
    row = ROWS[reason]
    try:
        row.before(stage)
        stage.create(row.waits)
        row.then(stage)
        reported = eventually(
            lambda: stage.read(reason),
            f"pod a gets {reason}",
            SECONDS,
            seen=lambda: (stage.cluster.decisions(), stage.events()),
        )
        assert row.remedy in reported
        row.done(stage)
        stage.running("a")
    finally:
        stage.clear()
