"""NVIDIA's device plugin for a whole node: the text of a config, the key that is named by it, the kubelet's ids."""

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from partitioning.nvidia_plugin import OWN_KEY, NodeConfig, check

CONFIGS = st.builds(NodeConfig, replicas=st.integers(1, 60), renamed=st.booleans(), mergeable=st.booleans())
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@given(CONFIGS)
def test_a_key_is_a_label_value_that_names_its_text(config: NodeConfig) -> None:
    assert OWN_KEY.fullmatch(config.key)
    assert LABEL_VALUE.fullmatch(config.key)
    assert config.digest.startswith(config.key.rpartition("-")[2])


@given(CONFIGS, CONFIGS)
def test_another_text_has_another_key(one: NodeConfig, other: NodeConfig) -> None:
    assert (one.text == other.text) == (one.key == other.key)


@given(CONFIGS)
def test_the_text_says_what_is_shared(config: NodeConfig) -> None:
    found = yaml.safe_load(config.text)
    assert (found["version"], found["flags"]["migStrategy"]) == ("v1", "none")
    if not config.shared:
        assert "sharing" not in found
        return
    mps = found["sharing"]["mps"]
    assert mps["resources"] == [{"name": "nvidia.com/gpu", "replicas": config.replicas}]
    assert mps.get("renameByDefault", False) == config.renamed
    assert mps.get("failRequestsGreaterThanOne", True) == (not config.mergeable)


def test_ids_are_those_of_nvidias_plugin() -> None:
    assert NodeConfig().ids("GPU-a") == {"GPU-a"}
    assert NodeConfig(replicas=2).ids("GPU-a") == {"GPU-a::0", "GPU-a::1"}


@pytest.mark.parametrize(
    ("capability", "replicas", "named"),
    [
        ((7, 0), 16, None),
        ((7, 0), 17, "allows 16"),
        ((7, 5), 48, None),
        ((9, 0), 48, None),
        ((9, 0), 49, "allows 48"),
        ((6, 1), 2, "older than Volta (compute capability 6.1)"),
    ],
)
def test_more_replicas_than_its_daemon_takes_are_refused(
    capability: tuple[int, int], replicas: int, named: str | None
) -> None:
    problem = check(capability, replicas)
    assert problem is None if named is None else named in (problem or "")
