"""What one process holds of the library: how often it initialised it, and its event sets.

All else is on the machine, shared by every process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox.driver.store import Store


@dataclass(slots=True)
class Registration:
    """One GPU in an event set: the kinds asked for, and the last event already given or there before."""

    mask: int
    seen: int


@dataclass(slots=True)
class Session:
    store: Store
    initialised: int = 0
    event_sets: dict[int, dict[int, Registration]] = field(default_factory=dict)
    event_sets_made: int = 0
