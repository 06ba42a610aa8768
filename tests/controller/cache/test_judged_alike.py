"""What the cache judged of pods one by one, as things changed, is what judging them all at once says.

Random changes of pods, and of resources and plans of nodes. The second way is that of a snapshot made by hand, as tests
and benchmarks make it.
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.objects import pod
from tests.controller.cache.test_trigger_completeness import Change, TwoNodes, changed, names, other
from tests.drawn import examples

RESOURCES = (
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-ours",
    "nvidia.com/mig-10gb",
    "nvidia.com/mig-1g.10gb",
    "aliyun.com/gpu-mem",
)


@st.composite
def created(draw: st.DrawFn) -> Change:
    name, resource, amount = draw(names), draw(st.sampled_from(RESOURCES)), draw(st.sampled_from(["1", "2", "30"]))
    tried, gang = draw(st.booleans()), draw(st.booleans())

    def apply(world: TwoNodes) -> None:
        if name in world.pods:
            return
        raw = pod(name, requests={resource: amount}, node="", unschedulable=tried)
        raw["metadata"] |= {"uid": f"uid-{name}-{world.version}"}
        if gang:
            raw["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "train"}
        world.version += 1
        world.put_pod(raw)

    return Change(f"create {name} {resource}={amount} tried={tried} gang={gang}", apply)


@st.composite
def advertised(draw: st.DrawFn) -> Change:
    place, resource, there = draw(st.sampled_from(["n1", "n2"])), draw(st.sampled_from(RESOURCES)), draw(st.booleans())

    def apply(world: TwoNodes) -> None:
        raw = world.nodes[place]
        rest = {name: n for name, n in raw["status"]["allocatable"].items() if name != resource}
        world.put_node(raw | {"status": raw["status"] | {"allocatable": rest | ({resource: "2"} if there else {})}})

    return Change(f"{'advertise' if there else 'withdraw'} {resource} on {place}", apply)


@settings(max_examples=examples(100))
@given(st.lists(st.one_of(created(), created(), changed(), other(), advertised()), min_size=4, max_size=25))
def test_pods_judged_one_by_one_are_judged_as_all_at_once(changes: list[Change]) -> None:
    world = TwoNodes()
    for change in changes:
        change.apply(world)
        snapshot = world.bench.state.cluster.snapshot()
        assert replace(snapshot, judged=None).demands == snapshot.demands
