"""The scripted runtime alone: containers on time, stops, what survives a kubelet."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sandbox.kubelet.injection import ContainerOptions
from sandbox.kubelet.runtime import ContainerRecord, ContainerRequest, ContainerState
from tests.runtime import RuntimeInHand
from tests.sandbox.kubelet.fakes import RecordingHooks
from tests.waiting import eventually

REQUEST = ContainerRequest(
    pod_uid="uid-1",
    namespace="default",
    pod="p",
    container="c",
    options=ContainerOptions(env={}),
    device_ids={},
    run_seconds=float("inf"),
    exit_code=0,
    start_seconds=0,
    stop_seconds=0.01,
    unkillable_seconds=0,
)


@pytest.fixture
def hooks() -> RecordingHooks:
    return RecordingHooks()


@pytest.fixture
def runtime(hooks: RecordingHooks) -> Iterator[RuntimeInHand]:
    runtime = RuntimeInHand(hooks)
    yield runtime
    runtime.close()


def wait_state(runtime: RuntimeInHand, state: ContainerState) -> ContainerRecord:
    eventually(lambda: runtime.containers()[0].state is state, f"the container is {state}")
    return runtime.containers()[0]


def test_a_container_runs_for_its_time(runtime: RuntimeInHand, hooks: RecordingHooks) -> None:
    heard: list[ContainerState] = []
    runtime.listen(lambda record: heard.append(record.state))
    runtime.start(replace(REQUEST, run_seconds=0.1, exit_code=3))
    record = wait_state(runtime, ContainerState.EXITED)

    assert record.exit_code == 3
    assert record.started_at is not None
    assert record.finished_at is not None
    assert 0.1 <= record.finished_at - record.started_at < 5
    eventually(lambda: heard == [ContainerState.RUNNING, ContainerState.EXITED], "both were reported")
    assert [kind for kind, _ in hooks.calls] == ["started", "stopped"]


@pytest.mark.parametrize(
    ("stop_seconds", "grace_seconds", "exit_code"), [(0.01, 60, 143), (60, 0.01, 137)], ids=["in time", "killed"]
)
def test_a_stop_ends_within_the_grace_period(
    runtime: RuntimeInHand, stop_seconds: float, grace_seconds: float, exit_code: int
) -> None:
    started = runtime.start(replace(REQUEST, stop_seconds=stop_seconds))
    wait_state(runtime, ContainerState.RUNNING)
    runtime.stop(started.container_id, grace_seconds)

    assert wait_state(runtime, ContainerState.EXITED).exit_code == exit_code


def test_an_unkillable_container_ends_when_it_is_released(runtime: RuntimeInHand) -> None:
    started = runtime.start(replace(REQUEST, unkillable_seconds=float("inf")))
    wait_state(runtime, ContainerState.RUNNING)
    runtime.release("uid-1")
    assert runtime.containers()[0].state is ContainerState.RUNNING, "it was not stopped yet"
    runtime.stop(started.container_id, 0)
    assert runtime.stopping("uid-1")

    runtime.release("uid-1")
    wait_state(runtime, ContainerState.EXITED)
    assert not runtime.stopping("uid-1")


def test_a_container_that_is_stopped_before_it_runs_never_runs(runtime: RuntimeInHand, hooks: RecordingHooks) -> None:
    started = runtime.start(replace(REQUEST, start_seconds=60))
    runtime.stop(started.container_id, 30)

    assert wait_state(runtime, ContainerState.EXITED).started_at is None
    assert hooks.calls == []


def test_a_refused_start_says_why(runtime: RuntimeInHand, hooks: RecordingHooks) -> None:
    hooks.refusal = "no such device"
    runtime.start(REQUEST)

    assert wait_state(runtime, ContainerState.EXITED).start_error == "no such device"
    assert hooks.calls == []


def test_containers_run_on_without_a_listener_and_are_lost_in_a_reboot(
    runtime: RuntimeInHand, hooks: RecordingHooks
) -> None:
    runtime.start(REQUEST)
    wait_state(runtime, ContainerState.RUNNING)
    boots = runtime.boots

    runtime.lose_all()
    assert runtime.containers() == ()
    assert [kind for kind, _ in hooks.calls] == ["started", "stopped"]
    assert runtime.boots == boots + 1
