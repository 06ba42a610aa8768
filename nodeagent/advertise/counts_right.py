"""Decides whether the agent may write its Node's amounts of GPU resources: where its admission policy is in force.

RBAC grants a write of a Node's whole status, of any Node; only the policy narrows that. So the agent first sends a dry
run of a write that the policy must refuse, which stores nothing either way, and writes only if the policy refused it.
It asks again from time to time, since policies come and go; where nothing answers, the last answer counts. Until the
first one, and without the right, the kubelet's own status tick carries the amounts. Must never take another refusal,
such as RBAC's, for the policy's.
"""

from collections.abc import Callable
from dataclasses import dataclass

from crds.v1alpha1.names import Reason
from kube.backoff import Backoff
from kube.errors import ApiError, Forbidden, Unavailable

PROBE = "gpuplan.dev/must-be-refused"
"""A resource that the agent may not write."""
OUTDATED = "the Node was changed in between: the next pass tries again"
"""Why a write failed that named an older version of the Node: no sign of a lost right."""
POLICY = "ValidatingAdmissionPolicy 'gpuplan-agent-node'"
REFUSAL = "gpuplan agent: the only amounts that it may change are those of GPU resources"
FIRST_SECONDS, AGAIN_SECONDS = 10.0, 1800.0
"""Between two questions: after the first that was not answered as it must be, and at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is known of the right, for the condition."""

    granted: bool
    reason: Reason
    message: str


OFF = Answer(
    granted=False,
    reason=Reason.IDLE,
    message="agent.settings.writeAllocatable is false: the Node shows a change at the kubelet's status tick.",
)
UNKNOWN = Answer(
    granted=False,
    reason=Reason.STARTING,
    message="Whether the admission policy gpuplan-agent-node is in force was not answered yet.",
)


def judge(error: ApiError | None) -> Answer | None:
    """What the answer to the dry run means, None being its success; returns None where it means nothing."""
    if isinstance(error, Unavailable):
        return None
    if isinstance(error, Forbidden) and POLICY in error.message and REFUSAL in error.message:
        message = "The agent writes the Node's amounts of GPU resources as soon as the kubelet lists the devices."
        return Answer(granted=True, reason=Reason.CONFIRMED, message=message)
    tick = "so the Node shows a change at the kubelet's status tick, up to ten seconds late"
    if error is None:
        why = "the admission policy gpuplan-agent-node is not in force and would let the agent write anything"
        remedy = "install the policies of gpuplan's chart with their bindings"
        return Answer(granted=False, reason=Reason.POLICY_MISSING, message=f"{why}, {tick}: {remedy}.")
    remedy = (
        "grant gpuplan-agent `patch` on nodes/status, as the chart does, or set agent.settings.writeAllocatable: false"
    )
    message = f"the agent may not write its Node's amounts ({error}), {tick}: {remedy}."
    return Answer(granted=False, reason=Reason.NOT_PERMITTED, message=message)


class CountsRight:
    """One per agent."""

    def __init__(self, ask: Callable[[], Answer | None], *, wanted: bool, clock: Callable[[], float]) -> None:
        self._ask, self._wanted, self._clock = ask, wanted, clock
        self._backoff = Backoff(first_seconds=FIRST_SECONDS, cap_seconds=AGAIN_SECONDS)
        self._asked_at = self._due_at = clock()
        self.answer = UNKNOWN if wanted else OFF

    def granted(self) -> bool:
        """Whether a write may be sent now; asks first where that is due."""
        if self._wanted and self._clock() >= self._due_at:
            found = self._ask()
            self._asked_at = self._clock()
            if found is None:
                pause_seconds = FIRST_SECONDS
            elif found.granted:
                self._backoff.reset()
                pause_seconds = AGAIN_SECONDS
            else:
                pause_seconds = self._backoff.next_seconds()
            self.answer, self._due_at = found or self.answer, self._asked_at + pause_seconds
        return self.answer.granted

    def doubt(self) -> None:
        """A write failed: ask again soon."""
        self._due_at = min(self._due_at, self._asked_at + FIRST_SECONDS)
