"""Remembers which item of each GPU was confirmed last, so that an outcome can tell "as it was confirmed" from "new".

Takes the plan of each pass and what the pass confirmed. The record on disk is the plan's own status: what an earlier
agent wrote there is loaded once for each plan, and nothing of another plan is believed. Writes nothing.
"""

from collections.abc import Mapping

from nodeagent.desired.plan import ObservedPlan


class Confirmations:
    """Item hashes by GPU UUID. `load` at the start of a pass."""

    def __init__(self) -> None:
        self._plan_uid = ""
        self._hashes: dict[str, str] = {}

    def load(self, plan: ObservedPlan | None) -> Mapping[str, str]:
        """What was confirmed before this pass."""
        uid = plan.uid if plan is not None else ""
        if uid != self._plan_uid:
            self._plan_uid = uid
            listed = plan.status.get("gpus") or [] if plan is not None else []
            self._hashes = {gpu["uuid"]: gpu["planHash"] for gpu in listed if gpu.get("uuid") and gpu.get("planHash")}
        return dict(self._hashes)

    def confirm(self, gpu_uuid: str, item_hash: str) -> None:
        self._hashes[gpu_uuid] = item_hash

    def forget(self, gpu_uuid: str) -> None:
        """The GPU is in no plan any more, or on its way to another item."""
        self._hashes.pop(gpu_uuid, None)
