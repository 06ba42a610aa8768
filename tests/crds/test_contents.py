"""What an item means is the same to the controller, which plans it, and to the agent, which makes it."""

from collections import Counter
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from controller.api.plan_items import desired_of, item_of
from controller.model.views import Desired, MigDesired, MpsDesired, PlannedGpu, WholeDesired
from crds.v1alpha1.spec import GpuItem
from nodeagent.desired.target import ItemTarget, MigTarget, MpsTarget, NodeDefaults, Refusal, WholeTarget, target
from nodeagent.hardware.driver import MigMode, ObservedGpu
from partitioning.models import GpuModel
from partitioning.mps import in_order
from tests.builders.models import MODELS

SIZED = st.one_of(
    st.fixed_dictionaries(
        {"memoryGB": st.integers(1, 30)},
        optional={"count": st.integers(1, 4), "threadPercent": st.integers(1, 100)},
    ),
    st.fixed_dictionaries({"memoryGiB": st.integers(1, 30)}, optional={"count": st.integers(1, 3)}),
)
EQUAL = st.fixed_dictionaries(
    {"replicas": st.integers(2, 60)},
    optional={"renameByDefault": st.booleans(), "failRequestsGreaterThanOne": st.booleans()},
)


def instances(model: GpuModel) -> st.SearchStrategy[dict[str, Any]]:
    def of_profile(name: str, starts: tuple[int, ...]) -> st.SearchStrategy[dict[str, Any]]:
        where: st.SearchStrategy[dict[str, Any]] = st.one_of(
            st.just({}),
            st.fixed_dictionaries({"start": st.sampled_from(starts)}),
            st.fixed_dictionaries({"count": st.integers(1, 3)}),
        )
        return where.map(lambda more: {"profile": name, **more})

    return st.one_of([of_profile(profile.name, profile.starts) for profile in model.profiles if profile.starts])


@st.composite
def items(draw: st.DrawFn) -> tuple[GpuModel, GpuItem]:
    model = draw(st.sampled_from(sorted(MODELS.values(), key=lambda model: model.key)))
    kinds: list[st.SearchStrategy[dict[str, Any]]] = [
        st.just({"whole": {}}),
        st.lists(SIZED, min_size=1, max_size=4).map(lambda slices: {"mps": {"slices": slices}}),
        EQUAL.map(lambda replicas: {"mps": replicas}),
    ]
    if any(profile.starts for profile in model.profiles):
        several = st.lists(instances(model), min_size=1, max_size=4)
        kinds.append(several.map(lambda listed: {"mig": {"instances": listed}}))
    return model, GpuItem.read({"index": 0, **draw(st.one_of(kinds))})


def agree(desired: Desired, made: ItemTarget) -> bool:
    match desired, made:
        case MigDesired(), MigTarget():
            placed, counted = Counter(desired.layout), Counter(dict(desired.counts))
            return not placed - Counter(made.layout) and Counter(made.layout.counts()) == counted + Counter(
                desired.layout.counts()
            )
        case MpsDesired(), MpsTarget():
            return in_order(desired.slices) == made.slices
        case _:
            return (type(desired), type(made)) == (WholeDesired, WholeTarget)


def on(model: GpuModel, item: GpuItem, renamed: bool) -> tuple[Desired, ItemTarget]:
    mode = MigMode.ENABLED if item.mig is not None else MigMode.DISABLED
    gpu = ObservedGpu(index=0, uuid="GPU-1", name=model.key, model=model, mig_mode=mode)
    node = NodeDefaults(driver_version="590.1", renames_replicas=renamed, replicas_before_volta=True)
    return (
        desired_of(item, model=model, memory_mib=model.memory_mib, renamed=renamed),
        target(item, gpu, (), node),
    )


@given(items(), st.booleans())
def test_what_the_agent_makes_is_what_the_controller_plans_with(drawn: tuple[GpuModel, GpuItem], renamed: bool) -> None:
    desired, made = on(*drawn, renamed)
    assume(not isinstance(made, Refusal))
    assert agree(desired, made)


@given(items())
def test_what_the_controller_writes_of_it_is_made_alike(drawn: tuple[GpuModel, GpuItem]) -> None:
    """On a node that gives replicas no name of its own."""
    model, item = drawn
    desired, made = on(model, item, renamed=True)
    assume(not isinstance(made, Refusal))
    written = GpuItem.read(item_of(PlannedGpu(index=0, uuid="GPU-1", desired=desired)).wire())

    again, made_again = on(model, written, renamed=True)
    assert again == desired
    assert agree(desired, made_again)
