"""No test asserts that something took less than a number of seconds: on a busy machine it would fail for nothing.

Speed is measured in `benchmarks/`. A test shows by other means that something does not wait: the other side hangs until
the test lets it go, or a clock is injected. Lower limits are fine: a busy machine only makes waits longer.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CLOCKS = {"monotonic", "perf_counter", "time"}
# What is judged there is a latency that users are promised, on a real control plane.
MEASURED = {TESTS / "e2e", TESTS / "hardware"}


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


def test_no_request_of_a_test_gives_up_while_a_busy_machine_answers() -> None:
    files = [path for path in TESTS.rglob("*.py") if not MEASURED & set(path.parents)]
    assert [f"{path}:{line}" for path in files for line in impatient_requests(ast.parse(path.read_text()))] == []


def test_no_test_has_an_upper_limit_by_wall_clock() -> None:
    files = [path for path in TESTS.rglob("*.py") if not MEASURED & set(path.parents)]
    assert files
    found = [f"{path}:{line}" for path in files for line in upper_limits(ast.parse(path.read_text()))]
    assert found == []
