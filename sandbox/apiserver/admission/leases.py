"""Leases as the API server judges them."""

from sandbox.apiserver.errors import FieldError, wrong
from sandbox.apiserver.objects import Obj, dig


def check(lease: Obj, _old: Obj | None) -> list[FieldError]:
    problems: list[FieldError] = []
    for field, least, complaint in (
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ):
        value = dig(lease, "spec", field)
        if value is not None and value < least:
            problems.append(wrong(f"spec.{field}", value, complaint))
    return problems
