"""What a config-manager does, case by case: steps and the state after each, for the real program and the stand-in.

A step that changes nothing is proven by the next one, whose number of signals is exact. Texts are those that the real
program logs. Nothing here acts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

KEYS = {"default": "version: v1\n", "a": "version: v1 # a\n", "b": "version: v1 # b\n"}
NO_CHOICE = "no config was set, no default was provided, and all fallbacks failed"
NO_PROCESS = "error finding pid: no process found"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What can be seen of one."""

    key: str = ""
    """That the link names; 'null' for /dev/null, '' for no link."""
    text: str | None = None
    """Behind the link; None where it dangles or is not there."""
    sent: int = 0
    """Signals, since the beginning."""
    ended: str | None = None
    """The last line of a process that exited 1."""


class Side(Protocol):
    """One of the two."""

    def project(self, data: Mapping[str, str]) -> None: ...
    def label(self, value: str | None) -> None: ...
    def plugin(self, runs: bool) -> None: ...
    def start(self) -> None: ...
    def run_once(self) -> None: ...
    def await_state(self, expected: State) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Project:
    data: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Label:
    value: str | None


@dataclass(frozen=True, slots=True)
class Plugin:
    runs: bool


@dataclass(frozen=True, slots=True)
class Start:
    once: bool = False


Step = Project | Label | Plugin | Start


def at(key: str, sent: int, ended: str | None = None, text: str | None = None) -> State:
    return State(key=key, text=KEYS.get(key, text) if text is None else text, sent=sent, ended=ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`settings` are the program's environment variables."""

    name: str
    steps: tuple[tuple[Step, State | None], ...]
    settings: tuple[tuple[str, str], ...] = ()


def do(side: Side, case: Case) -> None:
    """Take the steps of one case."""
    for step, expected in case.steps:
        match step:
            case Project(data):
                side.project(data)
            case Label(value):
                side.label(value)
            case Plugin(runs):
                side.plugin(runs)
            case Start(once=True):
                side.run_once()
            case Start():
                side.start()
        if expected is not None:
            side.await_state(expected)


_BEGIN = ((Project(KEYS), None), (Plugin(True), None), (Label("a"), None))
_RUNNING = (*_BEGIN, (Start(), at("a", 2)))
_UNSIGNALLED = ((Project(KEYS), None), (Label("a"), None))


def _fallbacks(*names: str) -> tuple[tuple[str, str], ...]:
    return (("FALLBACK_STRATEGIES", ",".join(names)),)


CASES = (
    Case(name="each start switches to the default first, then to the label's key", steps=_RUNNING),
    Case(
        name="the init container takes the default, whatever the label is",
        steps=(*_BEGIN, (Start(True), at("default", 0))),
    ),
    Case(
        name="a restart switches to the default and back, and signals both times",
        steps=(*_RUNNING, (Start(), at("a", 4))),
    ),
    Case(
        name="a label whose key is missing ends it, and its restart leaves the default, not the old key",
        steps=(
            *_RUNNING,
            (Label("none"), at("a", 2, "specified config none does not exist")),
            (Start(), at("default", 3, "specified config none does not exist")),
            (Start(), at("default", 3, "specified config none does not exist")),
            (Project({**KEYS, "none": "n"}), None),
            (Start(), at("none", 4, text="n")),
        ),
    ),
    Case(
        name="new content under the same key shows at once and signals nothing",
        steps=(
            *_RUNNING,
            (Project({**KEYS, "a": "new"}), at("a", 2, text="new")),
            (Label("b"), at("b", 3)),
        ),
    ),
    Case(
        name="a new key with the same text signals",
        steps=(*_RUNNING, (Project({**KEYS, "c": KEYS["a"]}), None), (Label("c"), at("c", 3, text=KEYS["a"]))),
    ),
    Case(name="a label that is removed means the default", steps=(*_RUNNING, (Label(None), at("default", 3)))),
    Case(
        name="a link to a removed key is never mended",
        steps=(
            *_RUNNING,
            (Project({"default": "d", "b": "b"}), State(key="a", sent=2)),
            (
                Label("b"),
                State(key="a", sent=2, ended="error creating symlink: symlink {mounted}/b {chosen}: file exists"),
            ),
            (
                Start(),
                State(key="a", sent=2, ended="error creating symlink: symlink {mounted}/default {chosen}: file exists"),
            ),
        ),
    ),
    Case(
        name="a plugin that does not run yet costs a restart, after which the label's key is signalled",
        steps=(
            *_UNSIGNALLED,
            (Start(), at("default", 0, NO_PROCESS)),
            (Plugin(True), None),
            (Start(), at("a", 1)),
        ),
    ),
    Case(
        name="a lost signal is not sent again for the default",
        steps=(
            (Project(KEYS), None),
            (Start(), at("default", 0, NO_PROCESS)),
            (Plugin(True), None),
            (Start(), at("default", 0)),
            (Label("b"), at("b", 1)),
        ),
    ),
    Case(
        name="where the process is never found the link goes back and forth, one step in each restart",
        steps=(
            *_UNSIGNALLED,
            (Start(), at("default", 0, NO_PROCESS)),
            (Start(), at("a", 0, NO_PROCESS)),
            (Start(), at("default", 0, NO_PROCESS)),
        ),
    ),
    Case(
        name="where the label's key is the default a restart changes nothing",
        settings=(("DEFAULT_CONFIG", "a"),),
        steps=((*_BEGIN, (Start(), at("a", 1)), (Start(), at("a", 1)), (Label("b"), at("b", 2)))),
    ),
    Case(
        name="a missing default is reported by the label's value",
        settings=(("DEFAULT_CONFIG", "none"),),
        steps=(*_BEGIN, (Start(), State(ended="specified config  does not exist"))),
    ),
    Case(
        name="without a key for no label it never reaches the label",
        steps=((Project({"a": "a", "b": "b"}), None), (Label("a"), None), (Start(), State(ended=NO_CHOICE))),
    ),
    Case(
        name="a single key is the default",
        steps=((Project({"a": KEYS["a"]}), None), (Plugin(True), None), (Start(), at("a", 1))),
    ),
    Case(
        name="the empty fallback is /dev/null",
        settings=_fallbacks("empty"),
        steps=(*_BEGIN, (Label(None), None), (Start(), State(key="null", text="", sent=1)), (Label("a"), at("a", 2))),
    ),
    Case(
        name="an unknown fallback ends it",
        settings=_fallbacks("first"),
        steps=(*_BEGIN, (Start(), State(ended="unknown fallback strategy: first"))),
    ),
    Case(
        name="no keys end it", steps=((Project({}), None), (Start(), State(ended="no configuration files available")))
    ),
)
