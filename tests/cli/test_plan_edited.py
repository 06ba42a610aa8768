"""`gpuplan plan -f` on plans of a dump that a person edited: wrong values are errors, spelled as kubectl does."""

from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from tests.builders.objects import node
from tests.builders.objects import plan as plan_object
from tests.cli.plan_command import dump

PIN = {"index": 0, "mig": {"instances": [{"profile": "1g.10gb", "start": 0}]}}
INSTANCE = "spec.gpus[0].mig.instances[0]"


def pinned(**instance: Any) -> dict[str, Any]:
    return {"gpus": [{"index": 0, "mig": {"instances": [{"profile": "1g.10gb", **instance}]}}]}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"gpus": ["a"]}, "spec.gpus[0]: "),
        ({"gpus": [{**PIN, "index": -1}]}, "spec.gpus[0].index: "),
        ({"gpus": [PIN, {"index": 1, "mig": {}}]}, "spec.gpus[1].mig.instances: "),
        (pinned(profile="10gb"), f"{INSTANCE}.profile: "),
        (pinned(start=-1), f"{INSTANCE}.start: "),
        ({"gpus": [{**PIN, "index": "0"}]}, "spec.gpus[0].index: '0' is not of type 'integer'"),
        (pinned(start="0"), f"{INSTANCE}.start: '0' is not of type 'integer'"),
        (pinned(start=True), f"{INSTANCE}.start: True is not of type 'integer'"),
        ({"paused": "true"}, "spec.paused: 'true' is not of type 'boolean'"),
        ({"gpus": [{"index": 0, "mps": {"replicas": 4, "renameByDefault": 1}}]}, "renameByDefault: 1 is not of type"),
    ],
)
def test_a_wrong_value_of_a_dumped_plan_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, spec: dict[str, Any], words: str
) -> None:
    assert main(["plan", "-f", str(dump(tmp_path, node(), plan_object(spec=spec)))]) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert "gpus.0" not in printed


def test_a_field_of_a_newer_version_is_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["plan", "-f", str(dump(tmp_path, node(), plan_object(spec={**pinned(start=0), "later": 1})))]) == 0
