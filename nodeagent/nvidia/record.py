"""Keeps on disk since when NVIDIA's plugin of this node has its key, and with which of its sockets that was confirmed.

An agent that starts again must neither take what was made before for a proof, nor a config that was confirmed for one
that never was.
"""

from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from nodeagent.handover.files import wire
from nodeagent.handover.kept import Kept

ANY_NS = 1
"""Before everything that is there."""


@wire
class _Switched:
    """Times are change times of this node's disk, in nanoseconds."""

    key: str = ""
    at_ns: int = 0
    """What was made before has another config."""
    confirmed_ns: int = 0
    """Of the socket that the plugin had when the key was confirmed last."""


class SwitchRecord:
    def __init__(self, path: Path) -> None:
        self._kept = Kept(path, TypeAdapter(_Switched), _Switched())

    def since(self, key: str, at_ns: int) -> int:
        """When the plugin got this key. A sidecar that restarts makes its link again, and no program reads it: the
        first time counts. Once the key was confirmed, nothing from before is left and any time does: a clock that is
        set back makes what starts then look older."""
        if self._kept.value.key != key:
            self._kept.keep(_Switched(key=key, at_ns=at_ns))
        return ANY_NS if self._kept.value.confirmed_ns else self._kept.value.at_ns

    def confirm(self, key: str, served_ns: int) -> None:
        """The kubelet has the devices of this key from the plugin that made its socket then."""
        if not self.is_confirmed(key, served_ns):
            self._kept.keep(replace(self._kept.value, key=key, confirmed_ns=served_ns))

    def is_confirmed(self, key: str, served_ns: int) -> bool:
        """Since the plugin made this socket."""
        return (self._kept.value.key, self._kept.value.confirmed_ns) == (key, served_ns)

    def forget(self, key: str) -> None:
        """Before a key is requested: what an earlier time with it proved says nothing of the next."""
        if self._kept.value.key == key:
            self._kept.keep(_Switched())
