"""Reports to the kubelet's liveness probe whether this plugin's own sockets answer, at 127.0.0.1:<port>/healthz.

A thread puts a question to each socket whose file is there, which passes through the device lists and reads no file.
Without an answer for 60 s the page is a 500, and the kubelet restarts the container. Any status is an answer, and where
nothing is served all is well: kubelet, disk and agent have no say.

A page on loopback rather than a command in the container: a command needs the container runtime and the node's disk
within the probe's time, and an interpreter each time. Where another program has the port the plugin serves without.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kube.kubelet_api.plugin_socket import answers
from kube.serve import Server, check_page

log = logging.getLogger(__name__)
ROUND_SECONDS, ANSWER_SECONDS, SILENT_SECONDS = 10.0, 5.0, 60.0


class Liveness:
    def __init__(self, sockets: Callable[[], list[Path]], clock: Callable[[], float] = time.monotonic) -> None:
        # Since when there is no answer; the question under way counts, as one that hangs is never answered.
        self._sockets, self._clock, self._asked = sockets, clock, dict[Path, float]()

    def problems(self) -> list[str]:
        """From any thread."""
        silent = {path.name: self._clock() - at for path, at in sorted(self._asked.copy().items())}
        return [f"{name} has not answered for {s:.0f} s" for name, s in silent.items() if s >= SILENT_SECONDS]

    def ask(self) -> None:
        """One round. Another path of the same resource is another socket, and begins again."""
        sockets = [path for path in self._sockets() if os.path.exists(path)]  # false for a path that cannot be read
        self._asked = {path: at for path, at in self._asked.items() if path in sockets}
        for path in sockets:
            self._asked.setdefault(path, self._clock())
            if answers(path, timeout_seconds=ANSWER_SECONDS):
                del self._asked[path]

    def start(self, port: int) -> None:
        """For as long as the process lives."""
        threading.Thread(target=self._run, daemon=True, name="liveness").start()
        try:
            Server("127.0.0.1", port, {"/healthz": check_page(self.problems)}).start()
        except OSError as error:
            log.error("no liveness page on 127.0.0.1:%d: %s: choose another devicePlugin.livenessPort", port, error)

    def _run(self) -> None:
        while True:
            self.ask()
            time.sleep(ROUND_SECONDS)
