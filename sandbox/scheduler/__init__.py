"""A stand-in for kube-scheduler: one thread that binds pods, with the real one's order, texts and retries.

`Scheduler(api).start()` watches pods and nodes, binds what fits, and writes the conditions and Events that people know
from `kubectl describe pod`. Feasibility is the controller's simulator, checked against kube-scheduler's own verdicts.

Not simulated: preemption, volumes, topology spread, inter-pod affinity, resource claims, preferences, several profiles.
"""

from sandbox.scheduler.scheduler import Scheduler
from sandbox.scheduler.waiting import BackOff

__all__ = ["BackOff", "Scheduler"]
