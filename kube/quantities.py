"""Reads Kubernetes quantities (`100m`, `1.5Gi`, `2e3`) as exact numbers.

Takes the text of a manifest or an API answer, returns a Fraction, or an integer rounded up as the API server does.
Never uses floats in between.
"""

import re
from fractions import Fraction

_SUFFIXES: dict[str, Fraction] = {
    **{name: Fraction(1024) ** power for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
    **{name: Fraction(1000) ** power for power, name in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{name: Fraction(1, 1000) ** power for power, name in enumerate(("m", "u", "n"), start=1)},
}
_FORM = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d{1,3})|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?))")


class QuantityError(ValueError):
    """The text is not a quantity."""


def parse_quantity(text: str | int | float) -> Fraction:
    """The exact value; numbers of YAML count as their own text."""
    if isinstance(text, bool):
        raise QuantityError(f"{text!r} is not a quantity such as 2, 500m or 1.5Gi")
    form = _FORM.fullmatch(str(text))
    if form is None:
        raise QuantityError(f"{text!r} is not a quantity such as 2, 500m or 1.5Gi")
    sign, digits, exponent, suffix = form.groups()
    scale = Fraction(10) ** int(exponent[1:]) if exponent else _SUFFIXES[suffix]
    value = Fraction(digits.rstrip(".")) * scale
    return -value if sign == "-" else value


def to_int(text: str | int | float) -> int:
    """Whole units (bytes, devices), rounded up."""
    return _round_up(parse_quantity(text))


def cpu_milli(text: str | int | float) -> int:
    """Thousandths of a core, rounded up."""
    return _round_up(parse_quantity(text) * 1000)


def _round_up(value: Fraction) -> int:
    """Away from zero, like the API server's Quantity."""
    magnitude = -(-abs(value.numerator) // value.denominator)
    return -magnitude if value < 0 else magnitude
