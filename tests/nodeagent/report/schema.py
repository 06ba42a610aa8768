"""The schema of the status, as the CRD has it."""

from functools import cache

from jsonschema import Draft202012Validator

from deploy.generate.crd import definition
from tests.nodeagent.world import World


@cache
def _status() -> Draft202012Validator:
    """Made once in a process: that takes longer than the passes of most tests."""
    properties = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return Draft202012Validator(properties["status"])


def check(world: World) -> None:
    """Against the schema of the CRD."""
    problems = [error.message for error in _status().iter_errors(world.status())]
    assert problems == []
    assert [c["type"] for c in world.status()["conditions"] if not c["message"]] == []
