"""The taint and the counts on the agent's own Node, against the sandbox's API server."""

import random
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient

from crds.v1alpha1.names import TAINT_CHANGING, Reason
from kube import apply, clients
from kube.budget import RequestBudget
from kube.errors import Unavailable
from kube.latest import LatestVersion
from nodeagent.advertise.counts_right import FIRST_SECONDS, OUTDATED, Answer, CountsRight
from nodeagent.advertise.node_writer import NodeWriter
from nodeagent.advertise.taint import Lists, NodeGuard, lowered, stale
from nodeagent.desired.plan import ObservedPlan
from nodeagent.observed.node import ObservedNode, parse_node
from nodeagent.report.publish import StatusFailures, StatusWriter
from tests.apiserver import ApiServer
from tests.clock import Clock

R = "nvidia.com/mig-1g.10gb"
RECORDS = tempfile.TemporaryDirectory(prefix="gpuplan-")
PATH = "/api/v1/nodes/n"
FOREIGN = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as found:
        yield found


@pytest.fixture
def api(server: ApiServer) -> Iterator[ApiClient]:
    found = clients.for_url(server.url)
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8"}}}
    apply.create(found, "/api/v1/nodes", body)
    yield found
    apply.delete(found, PATH)


def taints(api: ApiClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = apply.get(api, PATH).get("spec", {}).get("taints") or []
    return found


@pytest.mark.parametrize("foreign", [[], [FOREIGN]])
def test_the_taint_comes_and_goes_and_leaves_others_alone(api: ApiClient, foreign: list[dict[str, str]]) -> None:
    apply.merge_patch(api, PATH, {"spec": {"taints": foreign}})
    latest = LatestVersion[ObservedNode]()
    latest.on_event(None, None, parse_node(apply.get(api, PATH)))
    writer = NodeWriter(api, "n", latest, RequestBudget(), clock=Clock())

    assert writer.set_taint(True) == ""
    assert [taint["key"] for taint in taints(api)] == [*(t["key"] for t in foreign), TAINT_CHANGING]
    found = latest.get()
    assert found is not None
    assert found.changing

    before = apply.get(api, PATH)["metadata"]["resourceVersion"]
    assert writer.set_taint(True) == ""
    assert apply.get(api, PATH)["metadata"]["resourceVersion"] == before

    assert writer.set_taint(False) == ""
    assert [taint["key"] for taint in taints(api)] == [t["key"] for t in foreign]


def methods(api: ApiClient) -> list[str]:
    """Of the requests from now on."""
    assert isinstance(api, clients.Client)
    sent: list[str] = []
    api.answered = lambda method, _code, _seconds: sent.append(method)
    return sent


def test_the_taint_of_a_node_that_is_known_costs_one_request(api: ApiClient) -> None:
    apply.merge_patch(api, PATH, {"spec": {"taints": [FOREIGN]}})
    latest = LatestVersion[ObservedNode]()
    latest.on_event(None, None, parse_node(apply.get(api, PATH)))
    writer, sent = NodeWriter(api, "n", latest, RequestBudget(), clock=Clock()), methods(api)
    assert writer.set_taint(True) == ""
    assert writer.set_taint(False) == "", "its place is known from the answer"
    assert sent == ["PATCH", "PATCH"]
    assert taints(api) == [FOREIGN]


@pytest.mark.parametrize("present", [True, False])
def test_a_node_that_another_client_has_changed_is_read_again(api: ApiClient, present: bool) -> None:
    """What the watch brought last says where the taint is, and it is elsewhere, or there is none, by now."""
    latest = LatestVersion[ObservedNode]()
    other = {"key": "other", "effect": "NoSchedule"}
    ours = {"key": TAINT_CHANGING, "effect": "NoSchedule"}
    apply.merge_patch(api, PATH, {"spec": {"taints": [] if present else [ours, FOREIGN]}})
    latest.on_event(None, None, parse_node(apply.get(api, PATH)))
    apply.merge_patch(api, PATH, {"spec": {"taints": [other] if present else [other, ours]}})
    sent = methods(api)

    assert NodeWriter(api, "n", latest, RequestBudget(), clock=Clock()).set_taint(present) == ""
    assert sent == ["PATCH", "GET", "PATCH"]
    assert [taint["key"] for taint in taints(api)] == (["other", TAINT_CHANGING] if present else ["other"])


def test_a_taint_that_the_known_node_has_is_written_where_the_node_has_lost_it(api: ApiClient) -> None:
    latest = LatestVersion[ObservedNode]()
    apply.merge_patch(api, PATH, {"spec": {"taints": [{"key": TAINT_CHANGING, "effect": "NoSchedule"}]}})
    latest.on_event(None, None, parse_node(apply.get(api, PATH)))
    apply.merge_patch(api, PATH, {"spec": {"taints": None}})

    assert NodeWriter(api, "n", latest, RequestBudget(), clock=Clock()).set_taint(True) == ""
    assert [taint["key"] for taint in taints(api)] == [TAINT_CHANGING]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_others_write_meanwhile_and_however_late_the_watch_is_only_our_taint_changes(
    api: ApiClient, seed: int
) -> None:
    dice, latest = random.Random(seed), LatestVersion[ObservedNode]()
    latest.on_event(None, None, parse_node(apply.get(api, PATH)))
    writer = NodeWriter(api, "n", latest, RequestBudget(), clock=Clock())
    for number in range(40):
        act = dice.choice(("ours", "ours", "theirs", "labels", "watch", "ours by hand"))
        before = taints(api)
        others = [taint for taint in before if taint["key"] != TAINT_CHANGING]
        if act == "ours":
            present = dice.random() < 0.5
            assert writer.set_taint(present) == ""
            assert [taint for taint in taints(api) if taint["key"] != TAINT_CHANGING] == others
            assert (len(taints(api)) > len(others)) == present
        elif act == "theirs":
            another = {"key": f"k{number}", "effect": "NoSchedule"}
            kept = [taint for taint in before if dice.random() < 0.7 or taint["key"] == TAINT_CHANGING]
            dice.shuffle(changed := [*kept, another])
            apply.merge_patch(api, PATH, {"spec": {"taints": changed}})
        elif act == "ours by hand":
            apply.merge_patch(api, PATH, {"spec": {"taints": others or None}})
        elif act == "labels":
            apply.merge_patch(api, PATH, {"metadata": {"labels": {"a": str(number)}}})
        else:
            latest.on_event(None, None, parse_node(apply.get(api, PATH)))


def test_counts_are_written_and_others_kept(api: ApiClient) -> None:
    latest = LatestVersion[ObservedNode]()
    latest.on_event(None, None, parse_node(apply.get(api, PATH)))

    version = apply.get(api, PATH)["metadata"]["resourceVersion"]
    assert NodeWriter(api, "n", latest, RequestBudget(), clock=Clock()).set_counts(version, {R: 3}, {R: 4}) == ""

    status = apply.get(api, PATH)["status"]
    assert status["allocatable"] == {"cpu": "8", R: "3"}
    assert status["capacity"][R] == "4"
    found = latest.get()
    assert found is not None
    assert found.allocatable == {R: 3}


def test_counts_that_were_decided_on_an_older_node_are_refused_and_the_newer_one_is_read(api: ApiClient) -> None:
    latest = LatestVersion[ObservedNode]()
    latest.on_event(None, None, parse_node(apply.get(api, PATH)))
    writer = NodeWriter(api, "n", latest, RequestBudget(), clock=Clock())
    decided_on = latest.get()
    assert decided_on is not None
    apply.merge_patch(api, PATH, {"metadata": {"labels": {"a": "b"}}})

    assert "was changed in between" in writer.set_counts(decided_on.version, {R: 3}, {R: 4})
    assert R not in apply.get(api, PATH)["status"]["allocatable"]

    newer = latest.get()
    assert newer is not None
    assert writer.set_counts(newer.version, {R: 3}, {R: 4}) == "", "the watch has brought nothing"


def test_a_raise_whose_answer_was_lost_does_not_come_after_a_later_taint(api: ApiClient) -> None:
    latest = LatestVersion[ObservedNode]()
    latest.on_event(None, None, parse_node(apply.get(api, PATH)))
    late = latest.get()
    assert late is not None
    writer = NodeWriter(api, "n", latest, RequestBudget(), clock=Clock())
    assert writer.set_taint(True) == ""

    assert "was changed in between" in writer.set_counts(late.version, {R: 3}, {R: 3})
    assert R not in apply.get(api, PATH)["status"]["allocatable"]


def test_the_question_about_the_policy_stores_nothing(api: ApiClient) -> None:
    before = apply.get(api, PATH)
    found = NodeWriter(api, "n", LatestVersion[ObservedNode](), RequestBudget(), clock=Clock()).ask_policy()
    assert found is not None
    assert (found.granted, found.reason) == (False, Reason.POLICY_MISSING), "this API server has no policies"
    assert apply.get(api, PATH) == before


def test_a_failure_is_a_sentence(api: ApiClient) -> None:
    writer = NodeWriter(api, "gone", LatestVersion[ObservedNode](), RequestBudget(), clock=Clock())

    assert "cannot change the taint" in writer.set_taint(True)
    assert "cannot write the Node's allocatable" in writer.set_counts("1", {R: 1}, {R: 1})


@pytest.mark.timeout(60)  # without the budget each of the three requests waits for 30 s
def test_an_api_server_that_never_answers_holds_up_a_pass_only_for_its_budget() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        api = clients.for_url(f"http://127.0.0.1:{silent.getsockname()[1]}")
        budget = RequestBudget(seconds=0.2, shortest_seconds=0.1)
        node = NodeWriter(api, "n", LatestVersion[ObservedNode](), budget, clock=Clock())
        plans = LatestVersion[ObservedPlan]()
        failures = StatusFailures()
        status = StatusWriter(
            api, "n", plans, budget, beats=Beats(), failures=failures, clock=time.monotonic, interval_seconds=0.0
        )
        assert "no answer from the API server" in node.set_taint(True)
        assert "no answer from the API server" in node.set_counts("1", {R: 1}, {R: 1})
        with pytest.raises(Unavailable):
            status.write(ObservedPlan(uid="u", generation=1, version="1", content=None), {"summary": {}})


class Beats:
    taken = 0

    def beat_now(self) -> None:
        return


def observed(changing: bool = False, **counts: int) -> ObservedNode:
    return ObservedNode(
        name="n", uid="u", allocatable={f"nvidia.com/{k}": v for k, v in counts.items()}, changing=changing
    )


def test_absent_and_zero_are_one_thing() -> None:
    assert lowered(observed(a=0, b=2), {"nvidia.com/b": 2}) == ()
    assert lowered(observed(a=1, b=3), {"nvidia.com/b": 2}) == ("nvidia.com/a", "nvidia.com/b")
    assert stale(observed(a=0), {"nvidia.com/b": 0}) == {}
    assert stale(observed(a=1), {"nvidia.com/b": 2}) == {"nvidia.com/a": 0, "nvidia.com/b": 2}


class Writer:
    asked = 0

    def __init__(self, answer: str = "", clock: Clock | None = None, seconds: float = 0.0) -> None:
        self.done: list[object] = []
        self._answer, self._clock, self._seconds = answer, clock or Clock(), seconds

    def answers(self, answer: str, *, seconds: float = 0.0) -> None:
        """From now on."""
        self._answer, self._seconds = answer, seconds

    def set_taint(self, present: bool) -> str:
        self.done.append(present)
        self._clock.now += self._seconds
        return self._answer

    def set_daemons(self, present: bool) -> str:
        self.done.append(f"daemons {present}")
        return self._answer

    def set_counts(self, version: str, allocatable: Any, capacity: Any) -> str:
        self.done.append((version, dict(allocatable), dict(capacity)))
        return self._answer

    def ask_policy(self) -> Answer | None:
        self.asked += 1
        return Answer(granted=True, reason=Reason.CONFIRMED, message="")


A = "nvidia.com/a"


def lists(counts: dict[str, int], before: dict[str, int] | None = None, **capacities: int) -> Lists:
    known = {f"nvidia.com/{name}": count for name, count in capacities.items()}
    return Lists(counts=counts, capacities=known, before=counts if before is None else before, ours=[A])


def push(guard: NodeGuard, node: ObservedNode | None, wanted: Lists, *, watched: bool = True) -> str:
    """In a pass that begins now."""
    guard.begin_pass(watched=watched)
    return guard.before_push(node, wanted)


def guard(writer: Writer, *, write: bool = False, clock: Clock | None = None) -> NodeGuard:
    clock = clock or Clock()
    right = CountsRight(writer.ask_policy, wanted=write, clock=clock)
    return NodeGuard(writer, right, Path(tempfile.mkdtemp(dir=RECORDS.name)) / "taint.json", clock=clock)


@pytest.mark.parametrize(("answer", "asked"), [("forbidden", 2), (OUTDATED, 1)])
def test_a_write_that_named_an_older_node_is_no_reason_to_ask_for_the_right_again(answer: str, asked: int) -> None:
    writer, clock = Writer(answer), Clock()
    found = guard(writer, write=True, clock=clock)
    for _ in range(2):
        assert found.after_push(observed(a=1), lists({A: 2}), (), all_withdrawn=True) == answer
        clock.now += FIRST_SECONDS
    assert writer.asked == asked


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    ("node", "counts", "before", "done"),
    [
        pytest.param(observed(a=2), {A: 1}, {A: 2}, [True], id="lowered"),
        pytest.param(observed(a=2), {A: 2}, {A: 2}, [], id="equal"),
        pytest.param(observed(a=2), {A: 3}, {A: 2}, [], id="raised"),
        pytest.param(observed(a=2, changing=True), {A: 1}, {A: 2}, [], id="tainted already"),
        pytest.param(observed(a=1, other=5), {A: 1}, {A: 1}, [], id="another plugin's resource"),
        pytest.param(observed(a=2), {}, {A: 2}, [True], id="the last one goes"),
        pytest.param(observed(), {A: 0}, {A: 1}, [True], id="the Node may show it at any moment"),
    ],
)
def test_a_list_that_lowers_a_count_waits_for_the_taint(
    node: ObservedNode, counts: dict[str, int], before: dict[str, int], done: list[object], write: bool
) -> None:
    writer, clock = Writer(), Clock()
    found = guard(writer, write=write, clock=clock)
    clock.now += 60.0

    assert bool(push(found, node, lists(counts, before))) == bool(done)
    assert writer.done == done


@pytest.mark.parametrize(
    ("waited_seconds", "watched", "goes"),
    [
        pytest.param(
            1.1, True, False, id="a scheduler as slow as the write may have bound a pod that was not seen yet"
        ),
        pytest.param(1.3, True, True, id="once more what the write took, and a moment"),
        pytest.param(8.0, False, False, id="the watch of the Node, and so that of pods, is late"),
        pytest.param(11.0, False, True, id="at most ten seconds"),
    ],
)
def test_a_list_goes_once_pods_that_were_bound_before_the_taint_are_seen(
    waited_seconds: float, watched: bool, goes: bool
) -> None:
    clock = Clock()
    found = guard(Writer(clock=clock, seconds=1.0), clock=clock)
    shorter = lists({A: 1}, {A: 2})
    assert push(found, observed(a=2), shorter)
    assert found.due_seconds == pytest.approx(1.2)

    clock.now += waited_seconds
    assert (push(found, observed(a=2, changing=True), shorter, watched=watched) == "") == goes
    assert (found.due_seconds is None) == goes


def test_a_list_that_lowers_a_count_is_not_sent_without_the_taint_or_the_node() -> None:
    shorter = lists({A: 1}, {A: 2})
    for write in (False, True):
        assert push(guard(Writer("no"), write=write), observed(a=2), shorter) == "no"
    assert "was not read" in push(guard(Writer()), None, shorter, watched=False)


@pytest.mark.parametrize(
    ("node", "all_withdrawn", "unlike", "write", "done"),
    [
        pytest.param(observed(a=2, changing=True), True, [], False, [], id="the Node still counts more"),
        pytest.param(observed(a=1, changing=True), True, [], False, [False], id="the Node shows it"),
        pytest.param(observed(a=1, changing=True), False, [A], False, [], id="the kubelet has not withdrawn it"),
        pytest.param(
            observed(a=0, changing=True), True, [A], False, [False], id="the kubelet has less than is advertised"
        ),
        pytest.param(observed(a=2), True, [], True, [("7", {A: 1}, {A: 3})], id="written down"),
        pytest.param(
            observed(a=2, changing=True), True, [], True, [("7", {A: 1}, {A: 3}), False], id="and the taint goes"
        ),
        pytest.param(observed(), True, [], True, [("7", {A: 1}, {A: 3})], id="written up"),
        pytest.param(observed(b=9), True, ["nvidia.com/b"], True, [("7", {A: 1}, {A: 3})], id="one resource of two"),
        pytest.param(observed(a=2), True, [A], True, [], id="not written before the kubelet lists it"),
        pytest.param(observed(a=2), True, None, True, [], id="not written while that is not known"),
        pytest.param(observed(a=1, changing=True), True, [], True, [False], id="a taint of an agent before this one"),
    ],
)
def test_after_the_push(
    node: ObservedNode, all_withdrawn: bool, unlike: list[str] | None, write: bool, done: list[object]
) -> None:
    writer = Writer()

    guard(writer, write=write).after_push(
        replace(node, version="7"), lists({A: 1}, a=3), unlike, all_withdrawn=all_withdrawn
    )

    assert writer.done == done


@pytest.mark.parametrize(("node", "write"), [(observed(a=1, changing=True), False), (observed(a=2), True)])
def test_what_could_not_be_written_after_the_push_is_reported(node: ObservedNode, write: bool) -> None:
    found = guard(Writer("forbidden"), write=write)

    assert found.after_push(node, lists({A: 1}), (), all_withdrawn=True) == "forbidden"


def test_the_taint_stays_where_the_count_could_not_be_written() -> None:
    writer = Writer("forbidden")
    found = guard(writer, write=True)
    found.after_push(observed(a=2, changing=True), lists({A: 1}), (), all_withdrawn=True)
    assert False not in writer.done
    found.after_push(observed(a=1, changing=True), lists({A: 1}), (), all_withdrawn=True)
    assert False in writer.done, "the kubelet's tick brought it"
