"""Knows when records of holders were lost, and until when everything is doubted for it.

Takes the marks of the device plugin's ledger and of the agent's memory, and the files that were kept aside; returns why
nothing may be believed free. A pair of records that is not of one time is lost, too. Over once the witnesses of the end
have answered; a loss is never settled by what is not read, nor while a pod runs of which no record names the devices.
"""

from pathlib import Path

from nodeagent.durations import Durations
from nodeagent.handover.config import LedgerMark
from nodeagent.handover.files import identity
from nodeagent.observed.ends import Ends


class LostRecords:
    """Of one agent."""

    def __init__(
        self, aside: Path, mark: LedgerMark | None, earlier: LedgerMark | None, durations: Durations, patience: float
    ) -> None:
        """`aside` is where an unreadable memory is kept; `mark` is the ledger's, as the memory of this boot has it,
        `earlier` as one of any boot has."""
        self._aside, self.mark, self._durations, self._patience_seconds = aside, mark, durations, patience
        self._earlier = earlier
        self._settled: set[tuple[str, ...]] = set()
        """Losses that the witnesses have answered."""

    def lost(self, ledger: Path, mark: LedgerMark, ends: Ends, too_early: str) -> str:
        """Why nothing may be believed free: an earlier ledger or memory was lost, and with it holders not in List.

        `ledger` is where the plugin keeps one aside that it could not read. Over once no process of a pod is left that
        neither API nor kubelet knows; where processes are not seen, after a while. While the kubelet's List is
        `too_early`, for a reason, this settles nothing, and is no loss where it is all that hides something.
        """
        if too_early and (ends.strangers == too_early or not self.unrecorded(ledger, mark)):
            return ""
        for key, what in sorted(self.losses(ledger, mark).items()):
            waited = not too_early and self._durations.seconds("lost", *key) >= self._patience_seconds
            if ends.strangers is None and not waited:
                return f"{what}, and the processes that pods may have left are not seen"
            if ends.strangers:
                return f"{what}, and {ends.strangers}"
            self._settled.add(key)
        self.mark = mark
        return ""

    def unrecorded(self, ledger: Path, mark: LedgerMark) -> bool:
        """Whether a device may have been handed out in this boot that the ledger does not name."""
        whole = self._earlier is not None and mark.follows(self._earlier)
        return any(key[0] != "pair" or not whole for key in self.losses(ledger, mark))

    def losses(self, ledger: Path, mark: LedgerMark) -> dict[tuple[str, ...], str]:
        records = {ledger: "the device plugin lost its record of Allocates", self._aside: "the agent lost its memory"}
        found = {
            (path.name, *map(str, seen)): f"{what}, see {path.name}"
            for path, what in records.items()
            if (seen := identity(path)) is not None
        }
        if self.mark is None or not mark.follows(self.mark):
            what = "the agent's memory of holders and the device plugin's record of Allocates are not of one time"
            found["pair", *map(str, self.mark or ())] = what
        return {key: what for key, what in found.items() if key not in self._settled}
