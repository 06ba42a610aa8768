"""Whatever happens in a small cluster: where nothing starts a pass, a pass would place the same pods.

Random changes of pods, nodes and plans, each followed by the real planner on a fresh snapshot. Time does not pass, so
that the resync, which forgives omissions, never helps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model.results import PlanningResult
from controller.model.views import PlannerOptions
from controller.planning import plan as planner
from tests.builders.objects import Json, confirmed, item, node, plan, pod
from tests.controller.cache.state_bench import StateBench
from tests.drawn import examples

ZONE, HOST = "zone", "kubernetes.io/hostname"
NODES = ("n1", "n2", "cpu")
PODS = ("a", "b", "c", "d")


@dataclass
class Change:
    """`text` is what a failing example shows."""

    text: str
    apply: Callable[["TwoNodes"], None]

    def __repr__(self) -> str:
        return self.text


class TwoNodes:
    """Two nodes with one GPU each, one without; raw objects by name, as the API server has them."""

    def __init__(self) -> None:
        self.bench = StateBench()
        self.version = 10
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        for name in NODES:
            raw = node(name, mode=None if name == "cpu" else "mig")
            if name == "cpu":
                raw["metadata"]["labels"] = {}
            raw["metadata"]["labels"] |= {HOST: name, ZONE: "z1" if name == "n1" else "z2"}
            raw["status"]["allocatable"] = raw["status"]["allocatable"] | {"cpu": "8"}
            self.put_node(raw)
        for name in ("n1", "n2"):
            self.bench.beat(name)
            self.put_plan(name, 3)

    def put_node(self, raw: Json) -> None:
        self.nodes[raw["metadata"]["name"]] = raw
        self.bench.node(raw)

    def put_plan(self, name: str, *starts: int, used: tuple[int, ...] = (), **spec: Any) -> None:
        self.version += 1
        raw = plan(name, version=self.version, generation=self.version, planned=[item(0, *starts)], spec=spec)
        self.bench.plan(raw | {"status": confirmed(raw, used=used)})

    def put_pod(self, raw: Json) -> None:
        self.pods[raw["metadata"]["name"]] = raw
        self.bench.pod(raw)

    def plan(self) -> PlanningResult:
        return planner(self.bench.state.cluster.snapshot(), PlannerOptions())


def constraints(kind: str, app: str, key: str) -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    if kind == "spread":
        return {"topologySpreadConstraints": [term | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}
    if kind == "none":
        return {}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


names, places, apps = st.sampled_from(PODS), st.sampled_from(NODES), st.sampled_from(["x", "y"])
kinds = st.sampled_from(["none", "none", "podAffinity", "podAntiAffinity", "spread"])


@st.composite
def created(draw: st.DrawFn) -> Change:
    name, gpu = draw(names), draw(st.sampled_from(["", "1g.10gb", "3g.40gb", "7g.80gb"]))
    spec = constraints(draw(kinds), draw(apps), draw(st.sampled_from([ZONE, HOST])))
    cpu, app = draw(st.sampled_from(["1", "5"])), draw(apps)
    bound_to = draw(st.sampled_from(["", "", *NODES])) if not gpu else ""

    def apply(world: TwoNodes) -> None:
        if name in world.pods:
            return
        resources = {"cpu": cpu} | ({f"nvidia.com/mig-{gpu}": "1"} if gpu else {})
        raw = pod(name, requests=resources, node=bound_to, unschedulable=bool(gpu), **spec)
        raw["metadata"] |= {"labels": {"app": app}, "uid": f"uid-{name}-{world.version}"}
        world.version += 1
        world.put_pod(raw)

    return Change(f"create {name} gpu={gpu} cpu={cpu} app={app} node={bound_to} {spec}", apply)


@st.composite
def changed(draw: st.DrawFn) -> Change:
    name, place, app = draw(names), draw(places), draw(apps)
    what = draw(st.sampled_from(["bind", "resize", "relabel", "delete", "gone", "finish", "nominate", "unreadable"]))

    def apply(world: TwoNodes) -> None:
        if name not in world.pods:
            return
        raw = world.pods[name]
        spec, metadata, status = dict(raw["spec"]), dict(raw["metadata"]), dict(raw["status"])
        if what == "gone":
            del world.pods[name]
            world.bench.gone(name)
            return
        holds_gpus = "nvidia.com/" in str(spec["containers"])  # the agent's status shows when one of these is bound
        if what == "bind" and "nodeName" not in spec and not holds_gpus:
            spec, status = spec | {"nodeName": place}, status | {"conditions": []}
        elif what == "resize":
            container = spec["containers"][0]
            limits = container["resources"]["limits"] | {"cpu": "2"}
            spec["containers"] = [container | {"resources": {"limits": limits}}]
        elif what == "relabel":
            metadata["labels"] = {"app": app}
        elif what == "delete":
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        elif what == "finish":
            status["phase"] = "Succeeded"
        elif what == "nominate" and "nodeName" not in spec:
            status["nominatedNodeName"] = "" if status.get("nominatedNodeName") else place
        elif what == "unreadable":
            metadata["creationTimestamp"] = None if "creationTimestamp" in metadata else "yesterday"
        world.put_pod(raw | {"spec": spec, "metadata": metadata, "status": status})

    return Change(f"{what} {name} {place} {app}", apply)


@st.composite
def other(draw: st.DrawFn) -> Change:
    place, flag, start = draw(places), draw(st.booleans()), draw(st.sampled_from([0, 3]))
    what = draw(st.sampled_from(["zone", "cordon", "gone", "grow", "plan", "paused", "used"]))

    def apply(world: TwoNodes) -> None:
        raw = world.nodes[place]
        metadata, status = raw["metadata"], raw["status"]
        if what == "zone":
            labels = metadata["labels"] | {ZONE: "z1" if flag else "z2"}
            world.put_node(raw | {"metadata": metadata | {"labels": labels}})
        elif what == "cordon":
            world.put_node(raw | {"spec": {"unschedulable": flag}})
        elif what == "grow":
            allocatable = status["allocatable"] | {"cpu": "8" if flag else "16"}
            world.put_node(raw | {"status": status | {"allocatable": allocatable}})
        elif what == "gone" and place == "cpu":
            world.bench.state.observe_node(place, None)
        elif place != "cpu":
            world.put_plan(place, start, used=(start,) if what == "used" else (), paused=what == "paused" and flag)

    return Change(f"{what} {place} {flag} {start}", apply)


@settings(max_examples=examples(100))
@given(st.lists(st.one_of(created(), created(), changed(), changed(), other()), min_size=4, max_size=25))
def test_where_nothing_starts_a_pass_one_would_place_the_same_pods(changes: list[Change]) -> None:
    world = TwoNodes()
    placed: set[str] = set()
    for change in changes:
        change.apply(world)
        result = world.plan().placed
        if world.bench.triggers():
            world.bench.state.reserve({found.uid: found.node for found in result})
            placed = {found.uid for found in result}
        else:
            waiting = {found.uid for found in world.bench.state.cluster.pending() if not found.deleting}
            assert {found.uid for found in result} == placed & waiting
