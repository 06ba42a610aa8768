"""`gpuplan export`: plans to configs of NVIDIA's device plugin, and that both ways agree."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cli.convert import config_of
from cli.nvidia_config import PluginSharing, read
from partitioning.nvidia_plugin import CONFIG_LABEL
from tests.cli.configs import Run, plan


def test_a_plan_of_an_odd_form_is_named_and_others_are_exported(run: Run) -> None:
    good = plan("good", {"index": 0, "mps": {"replicas": 4}})
    odd = [plan("odd-0", planned=[]), plan("odd-1", devicePlugin=[])]
    odd[0]["spec"]["gpus"] = [7]
    odd[1]["spec"]["gpus"] = [{"index": 0, "mps": {"replicas": {}}}]
    for each in odd:
        each["metadata"]["uid"] = "u"
    code, configs, notes = run("export", [*odd, good])
    assert (code, len(configs)) == (1, 1)
    assert all(f"gpuplan: odd-{number}: " in notes for number in range(2))


def test_plans_become_configs_named_by_their_content(run: Run) -> None:
    four = {"replicas": 4}
    plans = [
        plan("a", {"index": 0, "mps": four}, {"index": 1, "mps": four}),
        plan("b", {"index": 0, "mps": {**four, "renameByDefault": True}}),
        plan("c", {"index": 0, "mps": {**four, "renameByDefault": False}}),
        plan("d", {"index": 0, "whole": {}}),
        plan("e", {"index": 0, "mps": four}, {"index": 1, "mps": {"replicas": 5}}),
    ]
    code, printed, notes = run("export", plans)
    assert code == 1
    assert len(printed) == 1
    data = printed[0]["data"]
    assert len(data) == 2  # a and b share alike
    assert all(key.startswith("gpuplan-mps-4-") for key in data)
    assert "d: the plan shares no GPU: only equal MPS replicas can be exported" in notes
    assert (
        "e: GPU 1: mps: it differs from that of GPU 0, and NVIDIA's device plugin serves all GPUs of a node alike"
        in notes
    )
    assert f"kubectl label node a {CONFIG_LABEL}=gpuplan-mps-4-" in notes


@given(replicas=st.integers(2, 48), renamed=st.booleans(), mergeable=st.booleans(), gpus=st.integers(1, 8))
def test_a_round_trip_changes_nothing(replicas: int, renamed: bool, mergeable: bool, gpus: int) -> None:
    mps: dict[str, Any] = {"replicas": replicas, "renameByDefault": renamed}
    if mergeable:
        mps["failRequestsGreaterThanOne"] = False
    found = read(config_of({"nodeName": "n", "gpus": [{"index": index, "mps": mps} for index in range(gpus)]}).text)
    assert isinstance(found, PluginSharing)
    assert found.remarks == ()
    assert found.mps is not None
    assert [one.replicas for one in found.mps.resources] == [replicas]
    assert found.mps.rename_by_default is renamed
    assert (found.mps.fail_requests_greater_than_one is False) is mergeable
