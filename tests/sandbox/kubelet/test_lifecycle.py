"""The life of one pod, without clock, runtime or API: what starts when, and which phase it is in."""

from sandbox.kubelet.lifecycle import PodRun, Step
from sandbox.kubelet.pods import parse_pod
from tests.sandbox.kubelet.builders import container, pod


def run_of(*names: str, init: list[dict[str, object]] | None = None, restarts: int = 0) -> PodRun:
    raw = pod(containers=[container(name) for name in names], init=init or [], annotations={"restarts": str(restarts)})
    return PodRun(pod=parse_pod(raw), admitted_at=100.0)


def start(run: PodRun, *names: str) -> None:
    for name in names:
        run.starting(name, f"{name}-id")
        run.started(name, 101.0)


def test_init_containers_one_after_the_other_then_all_apps_at_once() -> None:
    run = run_of("a", "b", init=[container("i1"), container("i2")])
    assert run.to_start() == ("i1",)
    start(run, "i1")
    assert run.to_start() == ()
    run.ended("i1", 102.0, 0)
    assert run.to_start() == ("i2",)
    start(run, "i2")
    run.ended("i2", 103.0, 0)

    assert run.to_start() == ("a", "b")
    assert run.phase == "Pending"
    start(run, "a", "b")
    assert (run.phase, run.ready, run.initialized) == ("Running", True, True)


def test_a_sidecar_lets_the_next_one_go_once_it_runs_and_is_started_again() -> None:
    run = run_of("a", init=[container("s", restartPolicy="Always")])
    assert run.to_start() == ("s",)
    run.starting("s", "s-1")
    assert run.to_start() == ()
    run.started("s", 101.0)
    assert run.to_start() == ("a",)

    assert run.ended("s", 102.0, 1) is True
    assert run.to_start() == (), "after its pause"
    run.start_again("s")
    assert run.to_start() == ("s",)


def test_a_pod_ends_with_its_longest_container() -> None:
    run = run_of("a", "b")
    start(run, "a", "b")
    run.ended("a", 102.0, 0)
    assert (run.phase, run.settle(), run.ready) == ("Running", False, False)

    run.ended("b", 103.0, 0)
    assert run.settle() is True
    assert (run.phase, run.settle()) == ("Succeeded", False), "reported once"


def test_an_exit_code_fails_the_pod() -> None:
    run = run_of("a", "b")
    start(run, "a", "b")
    run.ended("a", 102.0, 1)
    run.ended("b", 103.0, 0)
    run.settle()

    assert run.phase == "Failed"


def test_containers_start_again_as_often_as_the_script_says() -> None:
    run = run_of("a", restarts=1)
    start(run, "a")
    assert run.ended("a", 102.0, 0) is True
    assert (run.phase, run.settle(), run.containers["a"].reason) == ("Running", False, "CrashLoopBackOff")
    run.start_again("a")
    start(run, "a")

    assert run.ended("a", 103.0, 0) is False
    assert run.settle() is True


def test_a_stopping_pod_starts_nothing_and_ends_with_its_last_container() -> None:
    run = run_of("a", "b", restarts=5)
    start(run, "a")
    run.stopping = True
    assert run.to_start() == ()
    assert run.settle() is False

    assert run.ended("a", 102.0, 143) is False
    assert run.settle() is True
    assert run.phase == "Failed"


def test_failed_starts_are_counted_and_wait_for_their_timer() -> None:
    run = run_of("a")
    run.starting("a", "")
    assert run.start_failed("a", "CreateContainerConfigError", "no") == 1
    assert run.to_start() == ()
    run.start_again("a")
    assert run.to_start() == ("a",)
    run.starting("a", "")
    assert run.start_failed("a", "CreateContainerConfigError", "no") == 2
    start(run, "a")

    assert run.containers["a"].failed_starts == 0
    assert run.containers["a"].step is Step.RUNNING


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    run = run_of("a")
    assert run.transition("Ready", true=False, now=1) == 1
    assert run.transition("Ready", true=False, now=2) == 1
    assert run.transition("Ready", true=True, now=3) == 3


def test_health_of_an_id_that_left_the_list_is_remembered() -> None:
    run = run_of("a")
    key = ("a", "nvidia.com/gpu")
    assert run.note_health({key: {"x": True}}) is True
    assert run.note_health({key: {"x": False}}) is True
    assert run.note_health({key: {"x": None}}) is False
    assert run.device_health == {key: {"x": False}}
