"""Quantities are exact and round up, like the API server's."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.quantities import QuantityError, cpu_milli, parse_quantity, to_int

VALUES = [
    ("0", Fraction(0)),
    ("100m", Fraction(1, 10)),
    ("1.5Gi", Fraction(3 * 2**29)),
    ("1E", Fraction(10**18)),
    ("1E3", Fraction(1000)),
    ("2e-3", Fraction(1, 500)),
    (".5", Fraction(1, 2)),
    ("5.", Fraction(5)),
    ("+1k", Fraction(1000)),
    ("-1Ki", Fraction(-1024)),
    ("3n", Fraction(3, 10**9)),
    ("7u", Fraction(7, 10**6)),
    (2, Fraction(2)),
    (0.5, Fraction(1, 2)),
    ("1Ei", Fraction(2**60)),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_values(text: str | int | float, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1GiB", "1.2.3", "--1", "1ki", ".", "0x10", True, "nan", "1e", "1 "])
def test_what_is_no_quantity_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity such as"):
        parse_quantity(text)


@pytest.mark.parametrize(("text", "milli"), [("1", 1000), ("100m", 100), ("0.1m", 1), ("1n", 1), ("192", 192000)])
def test_cpu_rounds_up_to_milli(text: str, milli: int) -> None:
    assert cpu_milli(text) == milli


@pytest.mark.parametrize(("text", "whole"), [("1.5", 2), ("1", 1), ("-1.5", -2), ("128974848000m", 128974848)])
def test_whole_units_round_away_from_zero(text: str, whole: int) -> None:
    assert to_int(text) == whole


@given(st.integers(0, 10**6), st.sampled_from(["Ki", "Mi", "k", "M", "G"]))
def test_a_whole_number_with_a_whole_suffix_is_exact(number: int, suffix: str) -> None:
    assert to_int(f"{number}{suffix}") == number * to_int(f"1{suffix}")
