"""One column of `kubectl get`. A value of its own, so that tables and resources can both name it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandbox.apiserver.objects import Obj


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`cell` gives the value; None prints as blank."""

    name: str
    cell: Callable[[Obj], Any]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
