"""A second run of failed tests is allowed for two tests, not for three."""

import pytest

from tests.second_try import verdict


@pytest.mark.parametrize(
    ("failed", "code", "first_line"),
    [
        (["a::one"], 0, "SECOND TRY of 1 failed tests, see above why:"),
        (["b::two", "a::one"], 0, "SECOND TRY of 2 failed tests, see above why:"),
        (["a::one", "a::two", "a::three"], 1, "NO SECOND TRY: 3 tests failed, more than 2:"),
    ],
)
def test_a_second_run_is_for_two_tests_at_most(failed: list[str], code: int, first_line: str) -> None:
    found, text = verdict(failed)
    assert found == code
    assert text.splitlines() == [first_line, *(f"  {test}" for test in sorted(failed))]
