"""Quantities count as Go's `resource.Quantity` counts them, which is how kube-scheduler and kubelet do."""

import functools
import json
import operator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.quantities import QuantityError, cpu_milli, parse_quantity, to_int

TABLE = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "quantities.jsonl").read_text().splitlines()
    if not line.startswith("#")
]


def test_the_table_has_what_differs_from_exact_arithmetic() -> None:
    alone = {row["texts"][0]: row["value"] for row in TABLE if len(row["texts"]) == 1}
    assert (alone["1e999"], alone["18446744073709551617"], alone["9223372036854775808"]) == (0, 1, -(2**63))
    assert sum(len(row["texts"]) > 1 for row in TABLE) > 100


@pytest.mark.parametrize("row", TABLE, ids=lambda row: " + ".join(row["texts"])[:60])
def test_value_and_milli_value_are_those_of_go(row: dict[str, list[str] | int]) -> None:
    texts = row["texts"]
    assert isinstance(texts, list)
    total = functools.reduce(operator.add, map(parse_quantity, texts))
    assert (total.value, total.milli) == (row["value"], row["milli"])


@pytest.mark.parametrize(
    "text",
    ["", "x", "1 Gi", "1GiB", "1.2.3", "--1", "1ki", ".Ei", "0x10", True, "nan", "1e", "1 ", "1_0", "١", "1e1.0"],
)
def test_what_is_no_quantity_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity such as"):
        parse_quantity(text)


@pytest.mark.parametrize(("text", "milli"), [("1", 1000), ("100m", 100), ("0.1m", 1), ("1n", 1), ("192", 192000)])
def test_cpu_rounds_up_to_milli(text: str, milli: int) -> None:
    assert cpu_milli(text) == milli


@pytest.mark.parametrize(("text", "whole"), [("1.5", 2), ("1", 1), (2, 2), (0.5, 1), ("128974848000m", 128974848)])
def test_whole_units_round_up(text: str | float, whole: int) -> None:
    assert to_int(text) == whole


@pytest.mark.parametrize("text", ["9" * 10**6, "0." + "3" * 10**6 + "Ki", "1e" + "9" * 18, "-" + "1" * 10**6 + ".5E"])
def test_a_number_of_a_million_digits_is_read_like_any_other(text: str) -> None:
    assert -(2**63) <= to_int(text) < 2**63


def test_sizes_compare_beyond_64_bits() -> None:
    assert parse_quantity("1e30") > parse_quantity("9E")
    assert parse_quantity("1e30").rounded_up == 10**30
    assert parse_quantity("1500m").rounded_up == 2


@given(st.integers(0, 10**6), st.sampled_from(["Ki", "Mi", "k", "M", "G"]))
def test_a_whole_number_with_a_whole_suffix_is_exact(number: int, suffix: str) -> None:
    assert to_int(f"{number}{suffix}") == number * to_int(f"1{suffix}")
