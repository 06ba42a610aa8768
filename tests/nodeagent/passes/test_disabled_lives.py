"""Random lives of a node that people disable and enable while the driver is replaced, pods come and agents are killed.

Whatever happens, a plan that reports the node as handed back is right at that moment: nothing is advertised, nothing
that the kubelet lists could be given out, and no container runs on a GPU. In the end it is handed back.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crds.v1alpha1.gpu_operator import UPGRADE_STATE
from crds.v1alpha1.names import LABEL_NODE_AGENT, LABEL_PARTITIONING
from tests.drawn import examples, with_examples
from tests.nodeagent.passes.test_random_lives import RESOURCES, THREES, WAIT, Life, exact

pytestmark = pytest.mark.slow

ENABLED = {LABEL_PARTITIONING: "auto", LABEL_NODE_AGENT: "true"}
STEPS = ("enable", "disable", "let go", "driver goes", "driver is back")
steps = st.one_of(
    *(st.tuples(st.just(name)) for name in STEPS),
    st.tuples(st.just("mig"), exact, st.booleans()),
    st.tuples(st.just("whole")),
    st.tuples(st.just("pod"), st.sampled_from((*RESOURCES[:4], RESOURCES[5]))),
    st.tuples(st.just("finish"), st.integers(0, 5)),
    st.tuples(st.just("force delete"), st.integers(0, 5)),
    st.tuples(st.just("recreate"), st.integers(0, 5), st.integers(0, 3)),
    st.tuples(st.just("other plugin's pod"), st.integers(0, 5), st.just("{}::0")),
    st.tuples(st.just("kill after"), st.integers(1, 8)),
    st.tuples(st.just("pass"), st.integers(1, 4)),
)


class DisabledLife(Life):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.labels = dict(ENABLED)
        self._relabel()

    def _relabel(self) -> None:
        node = self.world.node
        self.world.node = {**node, "metadata": {**node["metadata"], "labels": dict(self.labels)}}

    def live(self, step: tuple[object, ...]) -> None:
        match step[0]:
            case "enable":
                self.labels |= ENABLED
            case "disable":
                self.labels.pop(LABEL_PARTITIONING, None)
            case "let go" if LABEL_PARTITIONING not in self.labels:
                self.labels.pop(LABEL_NODE_AGENT, None)
            case "driver goes":
                self.labels[UPGRADE_STATE] = "pod-restart-required"
            case "driver is back":
                self.labels.pop(UPGRADE_STATE, None)
        self._relabel()
        super().live(step if step[0] not in STEPS else ("pass", 1))

    @property
    def handed_back(self) -> bool:
        conditions = self.world.status().get("conditions", []) if self.world.plan else []
        return any(c["type"] == "HandedBack" and c["status"] == "True" for c in conditions)

    def check(self) -> None:
        super().check()
        if self.handed_back:
            world = self.world
            assert not world.plugin.config.advertised()
            assert not world.advertised(), "what the kubelet could give to a pod"
            assert not world.running, "containers on GPUs"


KNOWN = [
    [("mig", THREES, False), *WAIT, ("pod", RESOURCES[3]), ("disable",), *WAIT, ("force delete", 0), *WAIT],
    [("mig", THREES, False), *WAIT, ("disable",), *WAIT, ("enable",), ("pod", RESOURCES[3]), ("disable",), *WAIT],
    [("whole",), *WAIT, ("pod", RESOURCES[5]), ("driver goes",), ("disable",), *WAIT, ("driver is back",), *WAIT],
    [("mig", THREES, False), *WAIT, ("disable",), *WAIT, ("let go",), *WAIT, ("pod", RESOURCES[3]), *WAIT],
]


@with_examples(KNOWN)
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=3, max_size=25))
def test_a_node_is_never_handed_back_while_a_pod_has_or_can_get_a_device(lived: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as path:
        life = DisabledLife(Path(path))
        try:
            life.world.apply()
            life.world.settle(3)
            for step in lived:
                life.live(step)
            life.live(("driver is back",))
            for step in (("enable",), ("disable",)):
                life.live(step)
            life.stop()
            life.others.clear()
            for _ in range(3):
                life.world.clock.now += 120
                life.world.settle(10)
            life.check()
            assert life.handed_back, life.world.condition("HandedBack")
            assert not life.world.tainted()
        finally:
            life.world.undo()
