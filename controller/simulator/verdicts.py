"""The result of a filter: fit, or misfit with the plugin's name and kube-scheduler's own words."""

from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Fit:
    """The scheduler would bind the pod there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why it would not: the plugin, and each of its reasons in the scheduler's words."""

    plugin: str
    reasons: tuple[str, ...]

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)


Verdict: TypeAlias = Fit | Misfit
FIT: Final = Fit()


def misfit(plugin: str, *reasons: str) -> Misfit:
    return Misfit(plugin=plugin, reasons=reasons)
