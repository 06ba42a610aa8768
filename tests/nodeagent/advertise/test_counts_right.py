"""Whether the Node's amounts may be written: only a refusal by the policy itself proves that it limits the agent."""

import pytest

from crds.v1alpha1.names import Reason
from kube.errors import ApiError, BadRequest, Forbidden, NotFound, Unavailable
from nodeagent.advertise.counts_right import AGAIN_SECONDS, FIRST_SECONDS, POLICY, REFUSAL, Answer, CountsRight, judge
from tests.clock import Clock

BY_POLICY = Forbidden(f"nodes \"n\" is forbidden: {POLICY} with binding 'gpuplan-agent-node' denied request: {REFUSAL}")
BY_RBAC = Forbidden(
    'nodes "n" is forbidden: User "system:serviceaccount:gpuplan-system:gpuplan-agent" cannot patch resource '
    '"nodes/status" in API group "" at the cluster scope'
)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(BY_POLICY, Reason.CONFIRMED, id="by the policy"),
        pytest.param(None, Reason.POLICY_MISSING, id="nothing refuses it"),
        pytest.param(BY_RBAC, Reason.NOT_PERMITTED, id="by RBAC"),
        pytest.param(Forbidden(f"webhook denied the request: {REFUSAL}"), Reason.NOT_PERMITTED, id="by a webhook"),
        pytest.param(
            Forbidden(f"{POLICY} with binding 'b' denied request: expression '…' resulted in error: no such key"),
            Reason.NOT_PERMITTED,
            id="by a policy that does not work",
        ),
        pytest.param(
            Forbidden("ValidatingAdmissionPolicy 'house-rules' with binding 'b' denied request: no"),
            Reason.NOT_PERMITTED,
            id="by another policy",
        ),
        pytest.param(BadRequest("a webhook does not support dry run"), Reason.NOT_PERMITTED, id="no dry run here"),
        pytest.param(NotFound('nodes "n" not found'), Reason.NOT_PERMITTED, id="no Node"),
    ],
)
def test_only_the_refusal_of_the_policy_grants_it(error: ApiError | None, reason: Reason) -> None:
    found = judge(error)
    assert found is not None
    assert (found.granted, found.reason) == (reason is Reason.CONFIRMED, reason)
    if not found.granted:
        assert "status tick" in found.message
        assert "policies" in found.message or "grant" in found.message


def test_no_answer_means_nothing() -> None:
    assert judge(Unavailable("no answer from the API server")) is None


class Server:
    """Answers the question."""

    def __init__(self, error: ApiError | None) -> None:
        self.error = error
        self.asked = 0

    def __call__(self) -> Answer | None:
        self.asked += 1
        return judge(self.error)


def test_it_is_not_asked_where_it_is_switched_off() -> None:
    server = Server(BY_POLICY)
    right = CountsRight(server, wanted=False, clock=Clock())
    assert not right.granted()
    assert server.asked == 0
    assert "writeAllocatable is false" in right.answer.message


def test_a_policy_that_comes_and_goes_is_noticed() -> None:
    server, clock = Server(None), Clock()
    right = CountsRight(server, wanted=True, clock=clock)
    assert not right.granted()
    server.error = BY_POLICY
    assert not right.granted(), "not asked with every pass"
    clock.now += FIRST_SECONDS
    assert right.granted()

    server.error = None
    clock.now += AGAIN_SECONDS - 1.0
    assert right.granted()
    clock.now += 1.0
    assert not right.granted()
    assert right.answer.reason is Reason.POLICY_MISSING


def test_a_refused_write_is_a_reason_to_ask_soon() -> None:
    server, clock = Server(BY_POLICY), Clock()
    right = CountsRight(server, wanted=True, clock=clock)
    assert right.granted()
    server.error = BY_RBAC
    right.doubt()
    clock.now += FIRST_SECONDS
    assert not right.granted()


def test_while_nothing_answers_the_last_answer_counts_and_the_pause_does_not_grow() -> None:
    server, clock = Server(Unavailable("down")), Clock()
    right = CountsRight(server, wanted=True, clock=clock)
    for _ in range(60):  # ten minutes
        assert not right.granted()
        clock.now += FIRST_SECONDS
    assert right.answer.reason is Reason.STARTING
    server.error = BY_POLICY
    assert right.granted()

    server.error = Unavailable("down")
    clock.now += AGAIN_SECONDS
    assert right.granted()
    assert right.answer.granted


def test_questions_that_are_not_answered_well_become_rare() -> None:
    server, clock = Server(None), Clock()
    right = CountsRight(server, wanted=True, clock=clock)
    for _ in range(24 * 3600):
        right.granted()
        clock.now += 1.0
    assert server.asked < 2 * 24 * 3600 / AGAIN_SECONDS + 12
