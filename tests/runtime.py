"""The kubelet stand-in's container runtime in the hands of a test: containers follow a script, are released, or lost.

A pod's annotations below `sandbox.gpuplan.dev/` are the script: `start-seconds`, `stop-seconds`, `unkillable-seconds`
(`inf`: until released) and `exit-code`, of each of its containers.
"""

from dataclasses import replace

from sandbox.kubelet.runtime import KILLED, ContainerRecord, ContainerRequest, ScriptedRuntime

PREFIX = "sandbox.gpuplan.dev/"


class RuntimeInHand(ScriptedRuntime):
    """Adds scripts, and what only people and power cuts do."""

    def start(self, request: ContainerRequest) -> ContainerRecord:
        """As its script says."""

        def number(name: str, otherwise: float) -> float:
            return float(request.annotations.get(PREFIX + name, otherwise))

        return super().start(
            replace(
                request,
                start_seconds=number("start-seconds", request.start_seconds),
                stop_seconds=number("stop-seconds", request.stop_seconds),
                unkillable_seconds=number("unkillable-seconds", request.unkillable_seconds),
                exit_code=int(number("exit-code", request.exit_code)),
            )
        )

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
