"""Makes docs/reasons.md: for each reason for which a pod waits the situations, the message, and the remedy.

Reads the scenarios that the tests carry out: a message on the page is what planning prints, and after what the page
says was done, the pod is placed.
"""

from controller.model.reasons import UnplacedReason
from docs.generate.tables import table
from tests.controller.explanation.scenarios import ALL
from tests.controller.explanation.scenarios.scenario import Scenario

INTRODUCTION = """# Why a pod waits: situations and remedies

What keeps a pod waiting, what its Event says then, and what ends it: in each situation a test
does what the last column says, and the pod is placed.

What each reason means is in [conditions.md](conditions.md#reasons-for-which-a-pod-waits). The pod is `team/a`, its node
`n1`; the details, which name other pods, are in [`/decisions`](troubleshooting.md#a-pod-waits) alone.
"""


def page() -> str:
    """The page as text."""
    parts = [INTRODUCTION]
    for reason in UnplacedReason:
        rows = [_row(one) for one in ALL if one.reason is reason]
        parts += [f"## {reason.value}\n", table(("situation", "the Event says", "done"), rows)]
    return "\n".join(parts)


def _row(one: Scenario) -> tuple[str, str, str]:
    return one.what, one.why().message, one.done
