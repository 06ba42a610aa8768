"""The result of a filter: it fits, or it does not, with the plugin's name and kube-scheduler's own words."""

from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Fit:
    """The scheduler would bind the pod there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoesNotFit:
    """Why it would not: the plugin, and each of its reasons in the scheduler's words."""

    plugin: str
    reasons: tuple[str, ...]

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)


Verdict: TypeAlias = Fit | DoesNotFit
FIT: Final = Fit()


def does_not_fit(plugin: str, *reasons: str) -> DoesNotFit:
    return DoesNotFit(plugin=plugin, reasons=reasons)
