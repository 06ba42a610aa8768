"""Reads Kubernetes quantities (`100m`, `1.5Gi`, `2e3`) as Kubernetes itself counts them.

Takes the text of a manifest or an API answer, returns a Quantity: a decimal number that adds up and compares exactly,
and that becomes an int64 by the rules of Go's `resource.Quantity`, overflow included. kube-scheduler and the kubelet
calculate with those integers, so a better arithmetic would be a different one. Never uses floats, and takes no longer
for a number of a million digits.
"""

import re
from dataclasses import dataclass

_BINARY = {name: 1024**power for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL = {name: 3 * power for power, name in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), start=-3)}
_FORM = re.compile(
    r"(?=.)([+-]?)(0*)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,18})|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?))"
)
_NANO = -9
"""Exponent of the smallest amount that is kept; what is smaller is rounded up to it."""
_DIGITS = 18
"""Go holds numbers of so many digits as an int64 with an exponent, and others as a big number."""
_ENOUGH = 400
"""More digits, or a larger exponent, change no int64: a power of ten from 10**64 on is 0 in its 64 bits."""
_LARGEST = 2**63 - 1
_UNCHECKED = (1, 2, 3, 6, 9)
"""Go multiplies an int64 by these powers of ten in one step, and overlooks an overflow; by others it is 0 then."""


class QuantityError(ValueError):
    """The text is not a quantity."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """`unscaled` times ten to the power of `exponent`. `narrow`: Go holds it as an int64 with an exponent."""

    unscaled: int
    exponent: int = 0
    narrow: bool = True

    def __add__(self, more: "Quantity") -> "Quantity":
        if self.narrow and more.narrow and not (self.unscaled and more.unscaled):
            return more if more.unscaled else self
        exponent = min(self.exponent, more.exponent)
        mine, its = self._at(exponent), more._at(exponent)
        narrow = self.narrow and more.narrow and all(_fits(number) for number in (mine, its, mine + its))
        return Quantity(mine + its, exponent, narrow)

    def __gt__(self, other: "Quantity") -> bool:
        exponent = min(self.exponent, other.exponent)
        return self._at(exponent) > other._at(exponent)

    @property
    def value(self) -> int:
        """Whole units (bytes, devices)."""
        return self._int64(0)

    @property
    def milli(self) -> int:
        """Thousandths, as CPU is counted."""
        return self._int64(-3)

    @property
    def rounded_up(self) -> int:
        """Whole units without any limit, for sizes that Kubernetes compares as they are written."""
        return self._at(0) if self.exponent >= 0 else -(-self.unscaled // _ten_to(-self.exponent))

    def _at(self, exponent: int) -> int:
        return self.unscaled * _ten_to(self.exponent - exponent)

    def _int64(self, exponent: int) -> int:
        shift, unscaled = self.exponent - exponent, self.unscaled
        if shift >= 0:
            found = self._at(exponent)
            if not self.narrow:
                # Go takes the power as an int64, and what does not fit becomes its lowest one.
                return _wrapped(_wrapped(unscaled) * (_ten_to(shift) if shift <= _DIGITS else -_LARGEST - 1))
            return _wrapped(found) if _fits(found) or shift in _UNCHECKED else 0
        divisor = _ten_to(-shift)
        if self.narrow:
            magnitude = -(-abs(unscaled) // divisor)
            return magnitude if unscaled > 0 else -magnitude
        if unscaled < _LARGEST and -shift <= _DIGITS:
            unscaled = _wrapped(unscaled)
            return abs(unscaled) // divisor * (1 if unscaled > 0 else -1) + bool(unscaled % divisor)  # towards zero
        return _wrapped(unscaled // divisor + bool(unscaled % divisor))


def parse_quantity(text: str | int | float) -> Quantity:
    """Numbers of YAML count as their own text."""
    form = None if isinstance(text, bool) else _FORM.fullmatch(str(text))
    if form is None:
        raise _refused(text)
    sign, zeros, whole, fraction, power, suffix = form.groups()
    whole, fraction = whole or "0", fraction or ""
    exponent = (int(power) + 2**31) % 2**32 - 2**31 if power else _DECIMAL.get(suffix, 0)
    places = len(whole) + len(fraction)
    if suffix in _BINARY:
        # Go estimates the digits that the suffix adds, and takes fractions and small room for a big number.
        tens = _BINARY[suffix].bit_length() - 1
        narrow = not fraction and places + int(tens * 3 / 10) <= 14
    else:
        narrow = places <= _DIGITS and exponent - len(fraction) >= _NANO
    if not (narrow or zeros or form[3] or fraction):
        raise _refused(text)  # Go takes the lack of digits for 0, but not where it makes a big number of them.
    number = _read(whole, fraction, exponent, _BINARY.get(suffix or "", 0), narrow)
    return Quantity(-number.unscaled, number.exponent, narrow) if sign == "-" else number


def _refused(text: object) -> QuantityError:
    return QuantityError(f"{str(text)[:80]!r} is not a quantity such as 2, 500m or 1.5Gi")


def _read(whole: str, fraction: str, exponent: int, factor: int, narrow: bool) -> Quantity:
    if len(whole) > _ENOUGH:
        whole = "1" + whole[-_ENOUGH:]
    if len(fraction) > _ENOUGH:
        fraction = fraction[:_ENOUGH] + ("1" if fraction[_ENOUGH:].strip("0") else "0")
    unscaled, exponent = int(whole + fraction) * (factor or 1), min(exponent, _ENOUGH) - len(fraction)
    if narrow or not unscaled:
        return Quantity(unscaled, exponent, narrow)
    below = min(_NANO - exponent, 3 * _ENOUGH)
    nano = -(-unscaled // _ten_to(below)) if below > 0 else unscaled * _ten_to(-below)
    if factor and nano > _LARGEST * _ten_to(-_NANO):
        return Quantity(_LARGEST, 0, narrow)
    return Quantity(nano, _NANO, narrow)


def to_int(text: str | int | float) -> int:
    """Whole units (bytes, devices) of one quantity."""
    return parse_quantity(text).value


def cpu_milli(text: str | int | float) -> int:
    """Thousandths of a core of one quantity."""
    return parse_quantity(text).milli


def _ten_to(power: int) -> int:
    return int(10**power)


def _fits(number: int) -> bool:
    return -_LARGEST - 1 <= number <= _LARGEST


def _wrapped(number: int) -> int:
    """The low 64 bits as a signed number."""
    return (number + _LARGEST + 1) % 2**64 - _LARGEST - 1
