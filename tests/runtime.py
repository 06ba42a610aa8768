"""The kubelet stand-in's container runtime in the hands of a test: containers are released, or lost in a reboot."""

from sandbox.kubelet.runtime import KILLED, ScriptedRuntime


class RuntimeInHand(ScriptedRuntime):
    """Adds what only people and power cuts do."""

    def stopping(self, pod_uid: str) -> bool:
        """A container of the pod is being stopped and has not ended."""
        with self._lock:
            return any(
                record.container_id in self._stopping and record.request.pod_uid == pod_uid
                for record in self._running()
            )

    def release(self, pod_uid: str) -> None:
        """End containers that are being stopped now, unkillable or not."""
        with self._lock:
            for record in self._running():
                if record.request.pod_uid == pod_uid and record.container_id in self._stopping:
                    self._end(record.container_id, 0.0, KILLED)

    def lose_all(self) -> None:
        """As a reboot: every container is gone, and no listener is called."""
        with self._lock:
            self.boots += 1
            lost = self._running()
            self._records.clear()
            self._ends.clear()
        for record in lost:
            self._hooks.container_stopped(record)
