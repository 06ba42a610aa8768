"""Reads this node's GPUPartitionPlan from the API's raw object.

Takes raw objects from the watch and the answers to our own status writes, returns typed plans. A plan that cannot be
read keeps its problem, so that the problem is reported and the plan is never mistaken for an empty one. Writes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from crds.v1alpha1.names import Condition
from crds.v1alpha1.plan import GPUPartitionPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPlan:
    """One version of the plan."""

    uid: str
    generation: int
    version: str
    """resourceVersion."""
    content: GPUPartitionPlan | None
    """None where the object cannot be read, which `problem` explains."""
    problem: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)
    """As the API holds it, for comparing before writing."""
    unanswered: bool = False
    """A later write of the status failed, and may have been carried out all the same."""

    @property
    def spec_version(self) -> tuple[str, int]:
        """Changes with the spec only; a plan that was created again starts at generation 1 again."""
        return (self.uid, self.generation)

    @property
    def handed_back(self) -> bool:
        """The API shows that no pod has a device of this node or can get one: true until another status is written."""
        return self.says(Condition.HANDED_BACK) == "True"

    def says(self, kind: Condition) -> str:
        """The status of a condition as the API shows it; empty where it is not there."""
        found = (c for c in self.status.get("conditions") or () if c.get("type") == kind)
        return next((str(condition.get("status")) for condition in found), "")


def parse_plan(raw: Mapping[str, Any]) -> ObservedPlan:
    """Read a plan of the API; never raises."""
    metadata = raw["metadata"]
    content, problem = None, ""
    try:
        # The status is ours and is compared raw: an unreadable old one must not stop a good spec.
        content = GPUPartitionPlan.read({**raw, "status": None})
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return ObservedPlan(
        uid=metadata.get("uid", ""),
        generation=int(metadata.get("generation") or 0),
        version=metadata.get("resourceVersion", ""),
        content=content,
        problem=problem,
        status=raw.get("status") or {},
    )
