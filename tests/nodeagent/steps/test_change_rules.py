"""One rule of a change at a time: what is advertised, withdrawn, destroyed, made, and said to be missing."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from crds.v1alpha1.names import Reason
from nodeagent.desired.target import Disabled, MigTarget, MpsTarget, Refusal, Target, Unchanged, WholeTarget
from nodeagent.handover.config import PluginConfig
from nodeagent.hardware.driver import ComputeInstance, GpuInstance, MigMode, ObservedGpu
from nodeagent.hardware.partitions import Partition, mig_partition, mps_partition, whole
from nodeagent.observed.usage import Use, Verdict
from nodeagent.steps.changes import GpuChange, gpu_change
from nodeagent.steps.judged import JudgedGpu
from partitioning.layouts import Layout
from partitioning.mps import MAX_CLIENTS, MpsSlice, replicas_of, shareable_mib, slice_of_gb, units_of_gib
from tests.builders.models import H100
from tests.builders.observed import instance

PLAIN = ObservedGpu(index=0, uuid="GPU-0", name="H100", model=H100, mig_mode=MigMode.DISABLED)
MIG = replace(PLAIN, mig_mode=MigMode.ENABLED)
FREE = Verdict(use=Use.FREE)
HELD = Verdict(use=Use.USED, pod="a/b")
PROCESS = Verdict(use=Use.USED, why="a process")
UNKNOWN = Verdict(use=Use.UNKNOWN, why="w")
STRANGE = Verdict(use=Use.USED, pod="a/b", other_id="GPU-0::0")
"""Held under an id of another plugin."""
ONE, OTHER, HALF = instance("1g.10gb", 0, uuid="one"), instance("1g.10gb", 1, uuid="other"), instance("3g.40gb", 4)
HALF_MADE = instance("1g.10gb", 2, uuid="")
REDUCED = replace(ONE, compute=(ComputeInstance(id=0, slices=1, uuid="one", multiprocessors=16),), multiprocessors=26)
CUT_UP = replace(
    instance("2g.20gb", 2, uuid="cut"), compute=(ComputeInstance(id=0, slices=1, uuid="part", multiprocessors=1),)
)
"""With a compute instance that is not ours."""


def mig(*found: GpuInstance, **judged: object) -> JudgedGpu:
    gpu = replace(MIG, instances=found)
    return of(gpu, *(p for each in found if (p := mig_partition(gpu, each))), **judged)


def of(gpu: ObservedGpu, *partitions: Partition, **judged: object) -> JudgedGpu:
    """Free but for `use`, by id."""
    use = judged.pop("use", {})
    assert isinstance(use, Mapping)
    ids = {name: frozenset(judged.pop(name, ())) for name in ("withdrawn", "released", "unfinished")}  # type: ignore[call-overload]  # of literals
    return JudgedGpu(
        gpu=gpu,
        partitions=partitions,
        verdict=lambda p: use.get(p.id, FREE),
        withdrawn=ids["withdrawn"] | ids["released"],
        released=ids["released"],
        unfinished=ids["unfinished"],
        rests=bool(judged.pop("rests", False)),
    )


def layout(*found: GpuInstance) -> MigTarget:
    return MigTarget(layout=Layout.of(each.placed for each in found))


def done(target: Target, judged: JudgedGpu) -> dict[str, list[str]]:
    """What is not empty of a change, in words."""
    change = gpu_change(target, judged)
    words = {
        "advertise": [p.id for p in change.advertise],
        "withdraw": [p.id for p in change.withdraw],
        "destroy": [str(each.placed) for each in change.destroy],
        "finish": [str(each.placed) for each in change.finish],
        "create": [str(place) for place in change.create],
        "blocking": [p.id for p, _ in change.blocking],
        "missing": list(change.missing),
        "unreleased": [p.id for p in change.unreleased],
        "kept": [p.id for p in change.kept],
        "differs": ["yes"] * change.differs,
    }
    return {name: found for name, found in words.items() if found}


ONE_AT, OTHER_AT, HALF_AT, HALF_MADE_AT = (str(each.placed) for each in (ONE, OTHER, HALF, HALF_MADE))


@pytest.mark.parametrize(
    ("wanted", "judged", "found"),
    [
        pytest.param([ONE], mig(ONE), {"advertise": ["one"]}, id="as desired"),
        pytest.param([ONE], mig(), {"create": [ONE_AT], "missing": [ONE_AT]}, id="to be made"),
        pytest.param([], mig(ONE), {"withdraw": ["one"]}, id="first it leaves the list"),
        pytest.param([], mig(ONE, withdrawn={"one"}), {"withdraw": ["one"]}, id="until the kubelet has answered"),
        pytest.param([], mig(ONE, released={"one"}), {"withdraw": ["one"], "destroy": [ONE_AT]}, id="then it goes"),
        pytest.param(
            [], mig(ONE, use={"one": HELD}), {"advertise": ["one"], "blocking": ["one"]}, id="held and unwanted"
        ),
        pytest.param(
            [],
            mig(ONE, use={"one": UNKNOWN}, withdrawn={"one"}),
            {"withdraw": ["one"], "blocking": ["one"]},
            id="once withdrawn, what is not known to be free stays off the list",
        ),
        pytest.param(
            [], mig(ONE, use={"one": STRANGE}), {"withdraw": ["one"], "blocking": ["one"]}, id="held by another id"
        ),
        pytest.param(
            [ONE],
            mig(ONE, use={"one": STRANGE}),
            {"withdraw": ["one"], "blocking": ["one"]},
            id="desired, and held by another id",
        ),
        pytest.param([ONE], mig(ONE, use={"one": HELD}), {"advertise": ["one"]}, id="desired and held"),
        pytest.param([], mig(HALF_MADE), {"destroy": [HALF_MADE_AT]}, id="half-made and unwanted: never on the list"),
        pytest.param(
            [HALF_MADE],
            mig(HALF_MADE),
            {"finish": [HALF_MADE_AT], "missing": [HALF_MADE_AT]},
            id="half-made and desired",
        ),
        pytest.param(
            [HALF],
            mig(instance("1g.10gb", 4, uuid="a"), use={"a": HELD}),
            {"advertise": ["a"], "blocking": ["a"], "missing": [HALF_AT]},
            id="nothing is made where something used is",
        ),
        pytest.param(
            [HALF],
            mig(instance("1g.10gb", 4, uuid="a")),
            {"withdraw": ["a"], "missing": [HALF_AT]},
            id="nor where something free is still there",
        ),
        pytest.param(
            [HALF],
            mig(instance("1g.10gb", 4, uuid="a"), released={"a"}),
            {"withdraw": ["a"], "destroy": ["1g.10gb at 4"], "create": [HALF_AT], "missing": [HALF_AT]},
            id="made in the pass that destroys what is there",
        ),
        pytest.param(
            [ONE],
            mig(REDUCED),
            {"withdraw": ["one"], "missing": [ONE_AT]},
            id="with too few multiprocessors it is not what is desired",
        ),
        pytest.param(
            [ONE],
            mig(REDUCED, released={"one"}),
            {"withdraw": ["one"], "destroy": [ONE_AT], "missing": [ONE_AT]},
            id="and goes before it is made in full",
        ),
        pytest.param(
            [ONE],
            mig(REDUCED, use={"one": HELD}),
            {"advertise": ["one"], "blocking": ["one"], "missing": [ONE_AT]},
            id="once its pod has ended",
        ),
        pytest.param(
            [CUT_UP],
            mig(CUT_UP),
            {"blocking": ["part"], "missing": [str(CUT_UP.placed)]},
            id="with a compute instance that is not ours no pod gets it",
        ),
        pytest.param([], mig(CUT_UP, released={"part"}), {"blocking": ["part"]}, id="nor is it destroyed"),
        pytest.param(
            [ONE],
            mig(ONE, OTHER, HALF_MADE, released={"other"}, rests=True),
            {"advertise": ["one", "other"], "kept": ["other"]},
            id="while it rests nothing is destroyed, and what would be is on offer",
        ),
        pytest.param(
            [],
            mig(ONE, OTHER, use={"one": HELD}, rests=True),
            {"advertise": ["one", "other"], "blocking": ["one"], "kept": ["other"]},
            id="and what is held blocks as before",
        ),
    ],
)
def test_of_a_mig_gpu(wanted: list[GpuInstance], judged: JudgedGpu, found: dict[str, list[str]]) -> None:
    assert done(layout(*wanted), judged) == found


def slices(*sizes: int, threads: int | None = None) -> MpsTarget:
    return MpsTarget(slices=tuple(slice_of_gb(size, threads) for size in sizes))


def part(size: int, number: int = 0, threads: int | None = None) -> Partition:
    return mps_partition("GPU-0", slice_of_gb(size, threads), number)


WHOLE = whole(PLAIN)
REPLICAS = MpsTarget(slices=replicas_of(H100.memory_mib, 2))
FIRST, SECOND = (mps_partition("GPU-0", share, number) for number, share in enumerate(REPLICAS.slices))
TEN, TENTH = part(10).id, part(10, 1).id
LAST_GB = 40


@pytest.mark.parametrize(
    ("target", "judged", "found"),
    [
        pytest.param(slices(10, 20), of(PLAIN), {"advertise": [TEN, part(20).id]}, id="made by being advertised"),
        pytest.param(slices(10, 10), of(PLAIN), {"advertise": [TEN, TENTH]}, id="with numbers of their own"),
        pytest.param(
            slices(10),
            of(PLAIN, use={"GPU-0": PROCESS}),
            {"withdraw": ["GPU-0"], "blocking": ["GPU-0"], "missing": ["MPS slice 10gb"]},
            id="not while something runs on the whole",
        ),
        pytest.param(
            slices(10, 10),
            of(PLAIN, part(10), use={"GPU-0": PROCESS}),
            {"advertise": [TEN, TENTH]},
            id="where slices are, the processes are theirs",
        ),
        pytest.param(
            slices(10),
            of(PLAIN, WHOLE),
            {"withdraw": ["GPU-0"], "missing": ["MPS slice 10gb"]},
            id="first the whole goes",
        ),
        pytest.param(slices(10), of(PLAIN, WHOLE, released={"GPU-0"}), {"advertise": [TEN]}, id="then slices come"),
        pytest.param(
            slices(10),
            of(PLAIN, WHOLE, use={"GPU-0": HELD}),
            {"advertise": ["GPU-0"], "blocking": ["GPU-0"], "missing": ["MPS slice 10gb"]},
            id="a pod keeps the whole",
        ),
        pytest.param(slices(), of(PLAIN, use={"GPU-0": PROCESS}), {}, id="nothing blocks what makes nothing"),
        pytest.param(
            slices(10),
            of(PLAIN, replace(WHOLE, memory_mib=0), use={"GPU-0": HELD}),
            {"advertise": ["GPU-0"], "blocking": ["GPU-0"], "missing": ["MPS slice 10gb"]},
            id="also one that was recorded before its memory was known",
        ),
        pytest.param(slices(), of(PLAIN, part(10)), {"withdraw": [TEN]}, id="surplus leaves the list"),
        pytest.param(slices(), of(PLAIN, part(10), released={TEN}), {}, id="and ceases to exist"),
        pytest.param(
            slices(),
            of(PLAIN, part(10), use={TEN: HELD}),
            {"advertise": [TEN], "blocking": [TEN]},
            id="a pod keeps its slice",
        ),
        pytest.param(
            slices(10),
            of(PLAIN, part(10), part(10, 1), use={TENTH: HELD}),
            {"advertise": [TENTH], "withdraw": [TEN]},
            id="of two equal ones the used one stays",
        ),
        pytest.param(
            slices(10),
            of(PLAIN, part(10), part(10, 1), withdrawn={TEN}),
            {"advertise": [TENTH], "withdraw": [TEN]},
            id="then the one that is on the list",
        ),
        pytest.param(
            slices(10),
            of(PLAIN, part(10, 1), part(10)),
            {"advertise": [TEN], "withdraw": [TENTH]},
            id="then the lowest number",
        ),
        pytest.param(
            slices(10),
            of(PLAIN, part(10), use={TEN: STRANGE}),
            {"withdraw": [TEN], "blocking": [TEN]},
            id="held by another id",
        ),
        pytest.param(
            slices(10),
            of(PLAIN, use={TEN: STRANGE}),
            {"missing": ["MPS slice 10gb"]},
            id="not made where another plugin has the id",
        ),
        pytest.param(
            slices(10),
            of(PLAIN, use={TEN: replace(UNKNOWN, other_id="nvidia0")}),
            {"missing": ["MPS slice 10gb"]},
            id="or may have it",
        ),
        pytest.param(
            slices(10), of(PLAIN, use={TEN: PROCESS}), {"missing": ["MPS slice 10gb"]}, id="or something uses it"
        ),
        pytest.param(
            slices(10), of(PLAIN, use={TEN: UNKNOWN}), {"advertise": [TEN]}, id="doubts do not count before it is"
        ),
        pytest.param(
            slices(LAST_GB, LAST_GB, LAST_GB),
            of(PLAIN),
            {"advertise": [part(LAST_GB).id, part(LAST_GB, 1).id], "missing": [f"MPS slice {LAST_GB}gb"]},
            id="as much as there is memory for",
        ),
        pytest.param(
            slices(LAST_GB, LAST_GB),
            of(PLAIN, part(20), use={part(20).id: HELD}),
            {
                "advertise": [part(20).id, part(LAST_GB).id],
                "blocking": [part(20).id],
                "missing": [f"MPS slice {LAST_GB}gb"],
            },
            id="next to what stays",
        ),
        pytest.param(REPLICAS, of(PLAIN), {"advertise": [FIRST.id, SECOND.id]}, id="equal replicas have all of it"),
        pytest.param(
            REPLICAS,
            of(PLAIN, part(10)),
            {"withdraw": [TEN], "missing": ["MPS replica", "MPS replica"]},
            id="and change together",
        ),
        pytest.param(
            REPLICAS,
            of(PLAIN, part(10), use={TEN: HELD}),
            {"advertise": [TEN], "blocking": [TEN], "missing": ["MPS replica", "MPS replica"]},
            id="once no pod has anything else",
        ),
        pytest.param(
            REPLICAS, of(PLAIN, FIRST), {"advertise": [FIRST.id, SECOND.id]}, id="one that is missing comes back"
        ),
    ],
)
def test_of_a_gpu_with_slices(target: MpsTarget, judged: JudgedGpu, found: dict[str, list[str]]) -> None:
    assert done(target, judged) == found


@pytest.mark.parametrize(("there", "wanted", "kept"), [((30,), 50, 50), ((30, 50), 50, 50), ((50, 30), 50, 50)])
def test_another_limit_of_threads_is_the_same_slice(there: tuple[int, ...], wanted: int, kept: int) -> None:
    """The next pod that gets it has the new limit; one that has it already is preferred."""
    parts = tuple(part(10, number, threads) for number, threads in enumerate(there))

    change = gpu_change(slices(10, threads=wanted), of(PLAIN, *parts))

    (listed,) = change.advertise
    assert (listed.thread_percent, listed.number) == (kept, there.index(wanted) if wanted in there else 0)
    assert [p.number for p in change.withdraw] == [n for n in range(len(there)) if n != listed.number]
    assert not change.missing


def sized(memory_mib: int, label: str) -> MpsSlice:
    return MpsSlice(memory_mib=memory_mib, resource=f"nvidia.com/gpu-{label}", label=label)


def test_slices_fill_a_gpu_to_the_last_mib_and_the_last_client() -> None:
    room = shareable_mib(H100.memory_mib)
    small, large = sized(1, "1gb"), sized(room - 1, "2gb")
    assert "missing" not in done(MpsTarget(slices=(small, large)), of(PLAIN))
    assert done(MpsTarget(slices=(sized(2, "1gb"), large)), of(PLAIN))["missing"] == ["MPS slice 2gb"]

    parts = tuple(mps_partition("GPU-0", small, number) for number in range(MAX_CLIENTS))
    held, target = {p.id: HELD for p in parts}, MpsTarget(slices=(small, sized(1, "3gb")))
    assert done(target, of(PLAIN, *parts, use=held))["missing"] == ["MPS slice 3gb"]
    assert "missing" not in done(target, of(PLAIN, *parts[1:], use=held)), "the 48th client"
    more = MAX_CLIENTS + 3
    newer = done(MpsTarget(slices=(small,) * more), of(PLAIN))
    assert len(newer["advertise"]) == more, "which a newer driver serves, or the target would be refused"


def test_units_are_named_together() -> None:
    units = units_of_gib(79)
    found = done(MpsTarget(slices=(slice_of_gb(10), *units)), of(PLAIN, part(20), use={part(20).id: HELD}))
    assert found["missing"] == ["28 of aliyun.com/gpu-mem"]
    assert done(MpsTarget(slices=units[:3]), of(PLAIN, WHOLE))["missing"] == ["3 of aliyun.com/gpu-mem"]


@pytest.mark.parametrize(
    ("target", "judged", "found"),
    [
        pytest.param(WholeTarget(), of(PLAIN), {"advertise": ["GPU-0"]}, id="whole"),
        pytest.param(
            WholeTarget(), of(PLAIN, WHOLE, use={"GPU-0": HELD}), {"advertise": ["GPU-0"]}, id="and held by a pod"
        ),
        pytest.param(
            WholeTarget(),
            of(PLAIN, use={"GPU-0": PROCESS}),
            {"withdraw": ["GPU-0"], "blocking": ["GPU-0"], "missing": ["the whole GPU"]},
            id="first advertised when it is free",
        ),
        pytest.param(
            WholeTarget(), of(PLAIN, part(10)), {"withdraw": [TEN], "missing": ["the whole GPU"]}, id="after its slices"
        ),
        pytest.param(
            WholeTarget(),
            of(PLAIN, part(10), use={TEN: HELD}),
            {"advertise": [TEN], "blocking": [TEN], "missing": ["the whole GPU"]},
            id="after the last pod",
        ),
        pytest.param(
            WholeTarget(), of(PLAIN, part(10), released={TEN}), {"advertise": ["GPU-0"]}, id="once they have gone"
        ),
        pytest.param(
            Disabled(), mig(ONE), {"withdraw": ["one"], "unreleased": ["one"]}, id="disabled: at once off the list"
        ),
        pytest.param(
            Disabled(),
            mig(ONE, OTHER, use={"one": HELD}, released={"other"}),
            {"withdraw": ["one", "other"], "blocking": ["one"], "unreleased": ["one"]},
            id="also what is held; and an instance stays withdrawn",
        ),
        pytest.param(
            Disabled(),
            of(PLAIN, part(10), part(10, 1), released={TEN}),
            {"withdraw": [TENTH], "unreleased": [TENTH]},
            id="a slice that was released ceases to exist",
        ),
        pytest.param(Disabled(), mig(CUT_UP), {}, id="what is not ours was never on the list"),
        pytest.param(
            Disabled(),
            of(PLAIN, WHOLE, released={"GPU-0"}),
            {"withdraw": ["GPU-0"]},
            id="a whole GPU stays withdrawn",
        ),
    ],
)
def test_of_a_gpu_that_is_whole_or_disabled(target: Target, judged: JudgedGpu, found: dict[str, list[str]]) -> None:
    assert done(target, judged) == found


NO_MODE = Refusal(reason=Reason.MIG_MODE_DISABLED, message="")
MISMATCH = Refusal(reason=Reason.GPU_MISMATCH, message="")
BROKEN = replace(PLAIN, problem="it fell off the bus")


@pytest.mark.parametrize(
    ("target", "judged", "found"),
    [
        pytest.param(Unchanged(), of(PLAIN), {"advertise": ["GPU-0"]}, id="unplanned: whole"),
        pytest.param(MISMATCH, of(PLAIN), {"advertise": ["GPU-0"]}, id="refused: whole"),
        pytest.param(
            Unchanged(),
            of(PLAIN, use={"GPU-0": PROCESS}),
            {"withdraw": ["GPU-0"], "blocking": ["GPU-0"]},
            id="unplanned, and something runs on it",
        ),
        pytest.param(Unchanged(), of(PLAIN, part(10)), {"advertise": [TEN]}, id="unplanned, with a slice"),
        pytest.param(NO_MODE, of(PLAIN), {}, id="it waits for its MIG mode"),
        pytest.param(Unchanged(), of(MIG), {}, id="nothing is whole in MIG mode"),
        pytest.param(Unchanged(), mig(ONE, CUT_UP), {"advertise": ["one"]}, id="what there is, but what is not ours"),
        pytest.param(
            Unchanged(),
            mig(ONE, use={"one": STRANGE}),
            {"withdraw": ["one"], "blocking": ["one"]},
            id="but what is held by another id",
        ),
        pytest.param(
            Unchanged(),
            mig(ONE, HALF_MADE, unfinished={HALF_MADE.placed, ONE.placed}),
            {"advertise": ["one"], "destroy": [HALF_MADE_AT]},
            id="what this agent began goes",
        ),
        pytest.param(Unchanged(), mig(HALF_MADE), {}, id="not what another began"),
        pytest.param(Unchanged(planned=layout(ONE)), mig(ONE), {"advertise": ["one"]}, id="paused, and as planned"),
        pytest.param(
            Unchanged(planned=layout()), mig(ONE), {"advertise": ["one"], "differs": ["yes"]}, id="paused with too much"
        ),
        pytest.param(
            Unchanged(planned=layout(ONE)),
            mig(),
            {"missing": [ONE_AT], "differs": ["yes"]},
            id="paused with too little",
        ),
        pytest.param(
            Unchanged(planned=slices(10)),
            of(PLAIN),
            {"missing": ["MPS slice 10gb"], "differs": ["yes"]},
            id="paused: slices that a new driver has taken may come back",
        ),
        pytest.param(
            Unchanged(planned=slices(10)),
            of(PLAIN, part(10)),
            {"advertise": [TEN]},
            id="paused, and its slices are there",
        ),
        pytest.param(
            Unchanged(planned=slices(10)),
            of(PLAIN, part(10), part(20)),
            {"advertise": [TEN, part(20).id], "differs": ["yes"]},
            id="paused with one slice too many",
        ),
        pytest.param(
            Unchanged(planned=slices(10)),
            of(PLAIN, WHOLE),
            {"advertise": ["GPU-0"], "missing": ["MPS slice 10gb"], "differs": ["yes"]},
            id="paused as a whole",
        ),
        pytest.param(
            Unchanged(),
            of(BROKEN, part(10), part(10, 1), part(20), withdrawn={TENTH}, use={part(20).id: STRANGE}),
            {"advertise": [TEN], "withdraw": [TENTH, part(20).id]},
            id="not readable: what was advertised stays so, what was withdrawn, too",
        ),
        pytest.param(MISMATCH, of(BROKEN), {}, id="not readable, and never advertised"),
    ],
)
def test_of_a_gpu_that_stays_as_it_is(target: Target, judged: JudgedGpu, found: dict[str, list[str]]) -> None:
    assert done(target, judged) == found


def change_of(**found: object) -> GpuChange:
    return replace(GpuChange(gpu=MIG, target=WholeTarget(), advertise=(WHOLE,)), **found)  # type: ignore[arg-type]  # of literals


@pytest.mark.parametrize(
    ("found", "acts", "converged"),
    [
        ({}, False, True),
        ({"destroy": (ONE,)}, True, False),
        ({"finish": (HALF_MADE,)}, True, False),
        ({"create": (ONE.placed,)}, True, False),
        ({"withdraw": (WHOLE,)}, False, False),
        ({"blocking": ((WHOLE, HELD),)}, False, False),
        ({"missing": ("x",)}, False, False),
        ({"kept": (WHOLE,)}, False, False),
        ({"differs": True}, False, False),
        ({"unreleased": (WHOLE,)}, False, True),
    ],
    ids=str,
)
def test_what_is_left_to_do(found: dict[str, object], acts: bool, converged: bool) -> None:
    change = change_of(**found)
    assert (change.acts, change.converged) == (acts, converged)


FOREIGN = replace(WHOLE, id="GPU-1", gpu="GPU-1")


@pytest.mark.parametrize(
    ("config", "found", "moves"),
    [
        (PluginConfig.of([WHOLE.device]), {}, False),
        (PluginConfig.of([WHOLE.device, FOREIGN.device]), {}, False),
        (PluginConfig.of([WHOLE.device, FOREIGN.device], ["GPU-1"]), {}, False),
        (PluginConfig.of([WHOLE.device]), {"create": (ONE.placed,)}, True),
        (PluginConfig.of([]), {}, True),
        (PluginConfig.of([WHOLE.device], ["GPU-0"]), {}, True),
        (PluginConfig.of([WHOLE.device, part(10).device]), {}, True),
        (PluginConfig.of([WHOLE.device]), {"withdraw": (part(10),)}, True),
        (PluginConfig.of([WHOLE.device, part(10).device], [TEN]), {"withdraw": (part(10),)}, False),
        (PluginConfig.of([WHOLE.device, part(10).device], [TEN]), {}, True),
    ],
)
def test_whether_it_would_move_anything(config: PluginConfig, found: dict[str, object], moves: bool) -> None:
    assert change_of(**found).moves(config) is moves


@pytest.mark.parametrize(
    ("target", "instances", "differs"),
    [
        (layout(ONE), (ONE,), False),
        (layout(ONE), (), True),
        (layout(), (ONE,), True),
        (layout(ONE), (REDUCED,), True),
        (layout(HALF_MADE), (HALF_MADE,), True),
        (layout(CUT_UP), (CUT_UP,), True),
        (layout(ONE, HALF_MADE), (ONE, HALF_MADE), True),
        (NO_MODE, (ONE,), True),
        (WholeTarget(), (ONE,), False),
        (slices(10), (), False),
        (Unchanged(), (ONE,), False),
        (Disabled(), (ONE,), False),
    ],
)
def test_whether_the_hardware_differs(target: Target, instances: tuple[GpuInstance, ...], differs: bool) -> None:
    gpu = replace(MIG, instances=instances)
    assert change_of(gpu=gpu, target=target).hardware_differs is differs


def test_without_a_model_there_is_no_room_for_a_slice() -> None:
    unknown = replace(PLAIN, model=None)
    assert done(slices(10), of(unknown)) == {"missing": ["MPS slice 10gb"]}
