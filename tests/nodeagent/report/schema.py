"""The schema of the status, as the CRD has it."""

from jsonschema import Draft202012Validator

from crds.definition import definition
from tests.nodeagent.world import World


def check(world: World) -> None:
    """Against the schema of the CRD."""
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    problems = [error.message for error in Draft202012Validator(schema).iter_errors(world.status())]
    assert problems == []
    assert [c["type"] for c in world.status()["conditions"] if not c["message"]] == []
