"""Scenarios of waiting pods: one for each sentence that a pod's owner may read, with its remedy carried out.

`ALL` is the table. The pod is always `team/a`. The page docs/reasons.md is made from it.
"""

from tests.controller.explanation.scenarios import of_causes, of_planning, of_requests, of_room, of_schedulers
from tests.controller.explanation.scenarios.scenario import Scenario

ALL: tuple[Scenario, ...] = (
    *of_requests.TABLE,
    *of_room.TABLE,
    *of_causes.TABLE,
    *of_schedulers.TABLE,
    *of_planning.TABLE,
)
