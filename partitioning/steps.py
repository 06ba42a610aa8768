"""Computes the change steps from the layout a GPU has to the one it should have.

Takes the observed and the desired layout and the instances in use (unknown counts as used); returns what can be done
now: destroy these idle instances, then create those. An instance in use is never destroyed, and nothing is created that
would need its place; such work waits and is found again when the change is recomputed. So a change that was cut off
after any step is continued by computing it from what is then observed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from partitioning.layouts import Instance, Layout
from partitioning.profiles import never_together


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What to do on one GPU. All tuples are sorted by start; first destroy, then create."""

    destroy: tuple[Instance, ...]
    """Idle, and not desired."""
    create: tuple[Instance, ...]
    """Desired, and possible once `destroy` is done."""
    keep: tuple[Instance, ...]
    """Desired, and there already."""
    blocked: tuple[Instance, ...]
    """In use but not desired: they stay until they are released."""
    waiting: tuple[Instance, ...]
    """Desired, but only possible once some of `blocked` are gone."""

    @property
    def converged(self) -> bool:
        """Nothing to do and nothing to wait for."""
        return not (self.destroy or self.create or self.blocked or self.waiting)


def change(observed: Layout, desired: Layout, in_use: Iterable[Instance]) -> Change:
    """The steps towards `desired`. Names must be the driver's in all three (see `layouts.with_model_names`)."""
    used = frozenset(in_use)
    # What is in use exists, even if the observation missed it.
    there = observed.union(used)
    retained = [instance for instance in there if instance in desired or instance in used]
    absent = [instance for instance in desired if instance not in there]
    waiting = [instance for instance in absent if any(_collide(instance, other) for other in retained)]
    return Change(
        destroy=tuple(instance for instance in there if instance not in desired and instance not in used),
        create=tuple(instance for instance in absent if instance not in waiting),
        keep=tuple(instance for instance in there if instance in desired),
        blocked=tuple(instance for instance in there if instance in used and instance not in desired),
        waiting=tuple(waiting),
    )


def _collide(one: Instance, other: Instance) -> bool:
    return bool(one.mask & other.mask) or never_together(one.profile, other.profile)
