"""Keeps an error that belongs to one pod from ending the planning of all others.

Takes the error of a pass and returns the snapshot without the pod whose data raised it: a pending pod is left out, a
bound one keeps what it holds of its node, and nothing else of it is read; where not even that can be counted, nothing
is planned on its node. Which pod that is, the frames of the
traceback show: the innermost variable that holds a pod. The pass is then made again. If the same error comes again with
another suspect in common, that one is set aside in its place. Nothing of a pod that is set aside stays in the plan, and
no error is hidden: the result names each pod with its traceback.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from traceback import walk_tb

from controller.model.demand import DemandSet
from controller.model.reasons import UnplacedReason
from controller.model.results import PodFailure, Unplaced
from controller.model.snapshot import Snapshot
from controller.model.views import PodView

_MOST = 40
"""Passes that may be made again."""
_MOST_OF_NAMESPACE = 4
"""From here on all pending pods of the namespace are set aside with it: each one costs a pass."""
_HOLDING = ("namespace", "name", "uid", "node", "phase", "requests", "gpu", "deleting")
"""What of a pod that is set aside counts all the same."""


class SetAside:
    """What one pass leaves out because of its pods, over all of its tries."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._errors = dict(snapshot.demands.failed)
        """By uid; first those of pods that could not even be judged."""
        self._last: tuple[object, list[str], str] | None = None
        """Where the last error was, the other suspects, and the pod that was set aside for it."""
        self._tries = 0
        self.nodes: dict[str, Exception] = {}
        """Nodes on which nothing is planned, since what a pod holds there is not known."""
        self._pods = {pod.uid: pod for pod in (*snapshot.other_pods, *snapshot.pods, *snapshot.pending)}

    @property
    def snapshot(self) -> Snapshot:
        """Without what is set aside."""
        if not self._errors:
            return self._snapshot
        of_namespace = Counter(self._pods[uid].namespace for uid in self._errors)
        whole = {name for name, number in of_namespace.items() if number >= _MOST_OF_NAMESPACE}
        gone = {pod.uid for pod in self._snapshot.pending if pod.uid in self._errors or pod.namespace in whole}
        demands = self._snapshot.demands
        return replace(
            self._snapshot,
            pods=self._bare(self._snapshot.pods),
            other_pods=self._bare(self._snapshot.other_pods),
            pending=tuple(pod for pod in self._snapshot.pending if pod.uid not in gone),
            judged=DemandSet(
                helpable=tuple(one for one in demands.helpable if one.pod.uid not in gone),
                untried=tuple(one for one in demands.untried if one.pod.uid not in gone),
                refused=tuple(one for one in demands.refused if one.uid not in gone),
            ),
        )

    def takes(self, error: Exception, node: str = "") -> bool:
        """Set aside the pod that the error belongs to; False where it seems to belong to none.

        `node`: whose step raised it. If it does so again without the pod, the node is to blame.
        """
        place, suspects = (_place(error), node), [uid for uid in _suspects(error) if uid in self._pods]
        if self._last is not None and self._last[0] == place:
            _, others, innocent = self._last
            common = [uid for uid in suspects if uid in others]
            if common or node:
                del self._errors[innocent]
                suspects = common
        self._tries += 1
        bare = [pod for pod in (self._pods[uid] for uid in suspects if uid in self._errors) if pod.node]
        suspects = [uid for uid in suspects if uid not in self._errors]
        if self._tries > _MOST:
            return False
        if not suspects:
            unknown = {pod.node: error for pod in bare[:1] if pod.node not in self.nodes}
            self.nodes |= unknown
            return bool(unknown)
        self._errors[suspects[0]] = error
        self._last = (place, suspects[1:], suspects[0])
        return True

    def failures(self) -> tuple[PodFailure, ...]:
        """One per pod whose data raised an error, sorted by name."""
        named = sorted((self._pods[uid].key, uid) for uid in self._errors)
        return tuple(PodFailure.of(self._pods[uid], self._errors[uid]) for _, uid in named)

    def unplaced(self) -> tuple[Unplaced, ...]:
        """What the owners of pending pods read."""
        left = {pod.uid for pod in self.snapshot.pending}
        return tuple(
            Unplaced(uid=pod.uid, key=pod.key, reason=UnplacedReason.NOT_SERVED, message=self._message(pod))
            for pod in self._snapshot.pending
            if pod.uid not in left and pod.gpu
        )

    def _message(self, pod: PodView) -> str:
        error = self._errors.get(pod.uid)
        if error is None:
            return (
                "Planning several pods of this namespace failed, so none of its pods is planned. Ask an administrator "
                "to check in the controller's log which pods these are, and to delete them."
            )
        return (
            f"Planning this pod failed ({type(error).__name__}): nothing is planned for it, and it is tried again in "
            "each pass. Ask an administrator to report the traceback in the controller's log together with this pod."
        )

    def _bare(self, pods: Iterable[PodView]) -> tuple[PodView, ...]:
        """Without what is not known; of each pod that is set aside what it holds alone."""
        return tuple(_holding(pod) if pod.uid in self._errors else pod for pod in pods if not self._is_unknown(pod))

    def _is_unknown(self, pod: PodView) -> bool:
        return pod.uid in self._errors and pod.node in self.nodes


def _holding(pod: PodView) -> PodView:
    return PodView(**{name: getattr(pod, name) for name in _HOLDING})


def _place(error: BaseException) -> object:
    """Where it was raised."""
    return (type(error), *[(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)][-1:])


def _suspects(error: BaseException) -> list[str]:
    """Uids of the pods that were being handled, the innermost first."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return list(dict.fromkeys(uid for frame in reversed(frames) for uid in _held(frame.f_locals.values())))


def _held(values: Iterable[object]) -> Iterator[str]:
    """Of variables that hold a pod, or something that has one: an assignment, a demand, a resident."""
    for value in list(values):
        pod = value if isinstance(value, PodView) else getattr(value, "pod", None)
        if isinstance(pod, PodView):
            yield pod.uid
