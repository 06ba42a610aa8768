"""Keeps on disk since when NVIDIA's plugin of this node has its key, and with which of its sockets that was confirmed.

An agent that starts again must neither take what was made before for a proof, nor a config that was confirmed for one
that never was. A file that cannot be written costs that memory at the next start, and nothing before.
"""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, with_config

from kube.change_log import ChangeLog
from nodeagent.handover.files import WIRE, read_json, write_json

log = logging.getLogger(__name__)
ANY_NS = 1
"""Before everything that is there."""


@with_config(WIRE)
@dataclass(frozen=True, slots=True, kw_only=True)
class _Switched:
    """Times are change times of this node's disk, in nanoseconds."""

    key: str = ""
    at_ns: int = 0
    """What was made before has another config."""
    confirmed_ns: int = 0
    """Of the socket that the plugin had when the key was confirmed last."""


_FILE = TypeAdapter(_Switched)


class SwitchRecord:
    def __init__(self, path: Path) -> None:
        self._path, self._change_log = path, ChangeLog(log)
        found = read_json(path, _FILE)
        self._kept = found if isinstance(found, _Switched) else _Switched()

    def since(self, key: str, at_ns: int) -> int:
        """When the plugin got this key. A sidecar that restarts makes its link again, and no program reads it: the
        first time counts. Once the key was confirmed, nothing from before is left and any time does: a clock that is
        set back makes what starts then look older."""
        if self._kept.key != key:
            self._keep(_Switched(key=key, at_ns=at_ns))
        return ANY_NS if self._kept.confirmed_ns else self._kept.at_ns

    def confirm(self, key: str, served_ns: int) -> None:
        """The kubelet has the devices of this key from the plugin that made its socket then."""
        if not self.is_confirmed(key, served_ns):
            self._keep(replace(self._kept, key=key, confirmed_ns=served_ns))

    def is_confirmed(self, key: str, served_ns: int) -> bool:
        """Since the plugin made this socket."""
        return (self._kept.key, self._kept.confirmed_ns) == (key, served_ns)

    def forget(self, key: str) -> None:
        """Before a key is requested: what an earlier time with it proved says nothing of the next."""
        if self._kept.key == key:
            self._keep(_Switched())

    def _keep(self, value: _Switched) -> None:
        self._kept = value
        try:
            write_json(self._path, _FILE, value)
        except OSError as error:
            self._change_log.warn(f"{self._path} cannot be written, and is not believed after a restart: {error}")
        else:
            self._change_log.warn("")
