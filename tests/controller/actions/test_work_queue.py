"""What is due about each name: judged and done for itself, whatever fails about the others."""

import logging
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from controller.actions.environment import Environment
from controller.actions.metrics import ErrorStage, Metrics
from controller.actions.work_queue import WorkItem, WorkQueue
from tests.builders.objects import node
from tests.controller.cache.state_bench import StateBench


class Owner:
    """Judges the Nodes of a bench, breaks at some of them, and notes which duties were done."""

    def __init__(self, *names: str) -> None:
        self.bench = StateBench()
        self.leads = True
        self.metrics = Metrics(CollectorRegistry())
        environment = Environment(
            api=None,  # type: ignore[arg-type] # its duties send nothing
            state=self.bench.state,
            metrics=self.metrics,
            leading=lambda: self.leads,
            clock=self.bench.clock,
        )
        self.queue = WorkQueue(environment, stage=ErrorStage.STATUS)
        self.broken: set[str] = set()
        self.done: list[str] = []
        for name in names:
            self.bench.node(node(name))

    def judge(self, name: str) -> Iterator[WorkItem]:
        if name in self.broken:
            raise ValueError(f"{name} is odd")
        yield WorkItem(what=f"duty of {name}", about=name, act=lambda: self.done.append(name))

    def run(self) -> list[str]:
        self.done.clear()
        self.queue.run(self.judge)
        return sorted(self.done)

    def errors(self) -> float:
        return self.metrics.registry.get_sample_value("gpuplan_errors_total", {"stage": "status"}) or 0.0


def test_a_name_that_cannot_be_judged_keeps_no_other_from_its_duty() -> None:
    owner = Owner("n1", "n2", "n3")
    owner.broken = {"n1"}

    assert owner.run() == ["n2", "n3"]


def test_a_name_that_cannot_be_judged_is_logged_once_and_judged_again_later(caplog: pytest.LogCaptureFixture) -> None:
    owner = Owner("n1", "n2")
    owner.broken = {"n1"}
    with caplog.at_level(logging.ERROR):
        owner.run()
        owner.bench.clock.now += 60
        owner.run()
    assert [record.message for record in caplog.records] == ["cannot determine what is due for n1: n1 is odd"]
    assert owner.errors() == 2

    owner.broken = set()
    owner.bench.clock.now += 60
    assert owner.run() == ["n1", "n2"]


def test_a_duty_that_breaks_keeps_no_other_from_being_done() -> None:
    owner = Owner("n1", "n2", "n3")

    def judge(name: str) -> Iterator[WorkItem]:
        def act() -> None:
            if name == "n1":
                raise ValueError("odd")
            owner.done.append(name)

        yield WorkItem(what=f"duty of {name}", about=name, act=act)

    with pytest.raises(ValueError, match="odd"):  # the loop logs it
        owner.queue.run(judge)
    assert sorted(owner.done) == ["n2", "n3"]


def test_what_is_due_while_another_leads_is_done_once_this_one_leads_again() -> None:
    owner = Owner("n1", "n2")
    owner.leads = False
    assert owner.run() == []

    owner.leads = True
    assert owner.run() == ["n1", "n2"]
    assert owner.run() == []


def test_what_cannot_be_done_in_one_turn_is_done_in_the_next() -> None:
    owner = Owner("n1", "n2", "n3")

    def judge(name: str) -> Iterator[WorkItem]:
        def act() -> None:
            owner.done.append(name)
            owner.bench.clock.now += 10

        yield WorkItem(what=f"duty of {name}", about=name, act=act)

    for _ in range(3):
        owner.queue.run(judge)
    assert sorted(set(owner.done)) == ["n1", "n2", "n3"]
