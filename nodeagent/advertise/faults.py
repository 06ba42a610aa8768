"""Decides which GPUs cannot serve, so that their devices are listed as Unhealthy and no further pod gets one.

A GPU that reports a fault of its own counts after some seconds; one that cannot be read, for whatever reason, after a
minute without a good reading, and one whose calls do not return after five, because a busy driver blocks for seconds.
A driver that is away as a whole is the same for all of them. One bad answer between good ones is never a fault. What
was listed as Unhealthy stays so until good readings have lasted, also those of a new agent: it counts from its start.
Must never withdraw: as Unhealthy the devices keep their ids, the Node its capacity, and pods what they hold.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from nodeagent.hardware.driver import DriverError, DriverHangsError, Health, ObservedGpu
from nodeagent.observation import Observation
from nodeagent.observed.usage import Use
from nodeagent.steps.changes import GpuChange

FAULT_SECONDS = 5.0
"""A fault that one pass sees and the next does not must not cost a node its devices."""
UNREAD_SECONDS = 60.0
HANGING_SECONDS = 300.0
WELL_SECONDS = 10.0
LOOK_SECONDS = 5.0
"""Between two readings while something is to be decided: a good one in between is to be seen."""
UNKNOWN_GPUS = ""
"""Stands for every GPU that does not even report its UUID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The verdicts of one pass, on GPUs by UUID."""

    broken: frozenset[str] = frozenset()
    recovering: frozenset[str] = frozenset()
    """Read well, and not for long enough to believe it."""
    due_seconds: float | None = None
    """After which a verdict may change."""


class FaultBook:
    """Call `judge` once a pass."""

    def __init__(self, clock: Callable[[], float], inherited: Iterable[str] = ()) -> None:
        """`inherited` are the GPUs that an earlier agent left with Unhealthy devices."""
        self._clock = clock
        self._started = clock()
        self._ill = set(inherited)
        """Bad at some time, and not well for long enough since."""
        self._good_at: dict[str, float] = {}
        self._bad_since: dict[str, float] = {}
        self._good_since: dict[str, float] = {}

    def judge(
        self, gpus: Iterable[ObservedGpu], problem: DriverError | None = None, kept: Collection[str] = ()
    ) -> Faults:
        """`problem`: the driver as a whole does not answer. `kept`: GPUs whose reading is an earlier one."""
        now, found = self._clock(), {gpu.uuid: gpu for gpu in gpus}
        patience = {uuid: seconds for uuid, gpu in found.items() if (seconds := _patience(gpu)) is not None}
        if problem is not None:
            away = HANGING_SECONDS if isinstance(problem, DriverHangsError) else UNREAD_SECONDS
            patience = dict.fromkeys([*found, UNKNOWN_GPUS], away)
        if UNKNOWN_GPUS in self._ill:
            self._ill.update(found.keys() - self._good_at.keys())  # now it is known which these are
        good = {*found, UNKNOWN_GPUS} - patience.keys()
        self._good_at.update(dict.fromkeys(good.difference(kept), now))
        self._good_since = {uuid: self._good_since.get(uuid, now) for uuid in good}
        self._ill = {uuid for uuid in self._ill if now - self._good_since.get(uuid, now) < WELL_SECONDS}
        self._ill.update(patience)
        self._bad_since = {uuid: self._bad_since.get(uuid, now) for uuid in patience}
        bad_until = {
            uuid: max(self._bad_since[uuid] + FAULT_SECONDS, self._good_at.get(uuid, self._started) + seconds)
            for uuid, seconds in patience.items()
        }
        recovering = self._ill & good
        well_at = (self._good_since[uuid] + WELL_SECONDS for uuid in recovering)
        waits = [at - now for at in (*bad_until.values(), *well_at) if at > now]
        return Faults(
            broken=frozenset(uuid for uuid, at in bad_until.items() if at <= now),
            recovering=frozenset(recovering),
            due_seconds=min(*waits, LOOK_SECONDS) if waits else None,
        )


def _patience(gpu: ObservedGpu) -> float | None:
    """Seconds since the last good reading after which it is broken; None where it was read and is well."""
    if gpu.health is Health.UNHEALTHY:
        return FAULT_SECONDS
    if not gpu.problem:
        return None
    return HANGING_SECONDS if gpu.hangs else UNREAD_SECONDS


def unsafe_ids(observation: Observation, changes: Iterable[GpuChange]) -> set[str]:
    """Ids that the kubelet takes for free, or may, while they are in use, or may be."""
    found = ((p.id, observation.verdict(p, change.gpu)) for change in changes for p in change.withdraw)
    return {i for i, verdict in found if verdict.forgotten or verdict.other_id or verdict.use is Use.UNKNOWN}
