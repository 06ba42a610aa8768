"""No test asserts that something took less than a number of seconds: on a busy machine it would fail for nothing.

Speed is measured in `benchmarks/`. A test shows by other means that something does not wait: the other side hangs until
the test lets it go, or a clock is injected. Lower limits are fine: a busy machine only makes waits longer.
"""

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CLOCKS = {"monotonic", "perf_counter", "time"}
LOOKED_FOR = re.compile(rf"timeout=|\.wait\(|urlopen|urllib3|\b({'|'.join(CLOCKS)})\(")
# What is judged there is a latency that users are promised, on a real control plane.
MEASURED = {TESTS / "e2e", TESTS / "hardware"}


@cache
def parsed() -> dict[Path, ast.AST]:
    """The files that have anything that the checks look for."""
    texts = {path: path.read_text() for path in TESTS.rglob("*.py") if not MEASURED & set(path.parents)}
    return {path: ast.parse(text) for path, text in texts.items() if LOOKED_FOR.search(text)}


def lines(check: Callable[[ast.AST], list[int]]) -> list[str]:
    return [f"{path}:{line}" for path, tree in parsed().items() for line in check(tree)]


def reads_a_clock(node: ast.expr) -> bool:
    """An elapsed time, `clock() - before`; that a time is within a minute of now is no speed."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "abs":
        return False
    calls = (call.func for call in ast.walk(node) if isinstance(call, ast.Call))
    names = {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls}
    return any(isinstance(part, ast.Sub) for part in ast.walk(node)) and bool(names & CLOCKS)


def upper_limits(tree: ast.AST) -> list[int]:
    """Lines that assert that an elapsed time is below something."""
    found = []
    for assertion in ast.walk(tree):
        if not isinstance(assertion, ast.Assert):
            continue
        for compared in (node for node in ast.walk(assertion.test) if isinstance(node, ast.Compare)):
            sides = [compared.left, *compared.comparators]
            for before, operator, after in zip(sides, compared.ops, sides[1:], strict=False):
                smaller, larger = (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)
                if (isinstance(operator, smaller) and reads_a_clock(before)) or (
                    isinstance(operator, larger) and reads_a_clock(after)
                ):
                    found.append(assertion.lineno)
    return found


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("assert time.monotonic() - started < 5", True),
        ("assert 0.5 < monotonic() - started <= 5", True),
        ("assert 5 > time.time() - started", True),
        ("assert done and perf_counter() - started < 5", True),
        ("assert time.monotonic() - started >= 0.5", False),
        ("assert 0.5 < time.monotonic() - started", False),
        ("assert abs(began_at - time.time()) < 60", False),
        ("assert due_seconds <= 5.0", False),
    ],
)
def test_the_check_sees_upper_limits(line: str, refused: bool) -> None:
    assert bool(upper_limits(ast.parse(line))) == refused


def impatient_requests(tree: ast.AST) -> list[int]:
    """Lines of HTTP requests that give up before 10 s: urllib3's own `request` does after 3."""
    found = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if ast.unparse(call.func) not in {"urlopen", "urllib.request.urlopen", "urllib3.request"}:
            continue
        limits = [float(ast.unparse(word.value)) for word in call.keywords if word.arg == "timeout"]
        if not limits or limits[0] < 10:
            found.append(call.lineno)
    return found


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("urllib3.request('GET', url)", True),
        ("urlopen(url, timeout=5)", True),
        ("urlopen(url, timeout=60)", False),
    ],
)
def test_the_check_sees_impatient_requests(line: str, refused: bool) -> None:
    assert bool(impatient_requests(ast.parse(line))) == refused


def impatient_waits(tree: ast.AST) -> list[int]:
    """Lines that wait less than a minute for what must come; what must not come is awaited for less than a second."""

    def impatient(limit: ast.expr) -> bool:
        return isinstance(limit, ast.Constant) and isinstance(limit.value, (int, float)) and 1 <= limit.value < 60

    asserted = {id(one) for found in ast.walk(tree) if isinstance(found, ast.Assert) for one in ast.walk(found.test)}
    found = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        limits = [word.value for word in call.keywords if word.arg == "timeout"]
        if id(call) in asserted and getattr(call.func, "attr", "") == "wait":
            limits += call.args
        found += [call.lineno for limit in limits if impatient(limit)]
    return found


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("process.communicate(timeout=20)", True),
        ("assert synced.wait(10)", True),
        ("assert process.wait(timeout=20) == 0", True),
        ("assert synced.wait(SECONDS)", False),
        ("assert not synced.wait(0.1)", False),
        ("world.wait(5)", False),
    ],
)
def test_the_check_sees_impatient_waits(line: str, refused: bool) -> None:
    assert bool(impatient_waits(ast.parse(line))) == refused


def test_no_test_gives_up_what_comes_late_on_a_busy_machine() -> None:
    assert lines(impatient_waits) == []


def test_no_request_of_a_test_gives_up_while_a_busy_machine_answers() -> None:
    assert lines(impatient_requests) == []


def test_no_test_has_an_upper_limit_by_wall_clock() -> None:
    assert parsed()
    assert lines(upper_limits) == []
