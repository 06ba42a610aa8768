"""One alert's row: its fault, what the page's commands show, and the mitigation of the page."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.e2e.runbooks import page
from tests.e2e.runbooks.stage import Stage

Act = Callable[[Stage], object]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A fault and its end. Commands come from the page; the row says what its placeholders are and what is seen."""

    labels: Mapping[str, str]
    """Of the alert, besides its name, severity and namespace."""
    inject: Act
    sees: Mapping[str, str]
    """What the page promises to show: the beginning of a command (`kubectl` left out), and words of its output."""
    mitigate: Act
    pod: str = ""
    """The user's pod that the page's NAME is."""
    node: str = field(default="")
    """The page's NODE where the alert has no label of a node."""

    @property
    def values(self) -> dict[str, str]:
        """What placeholders stand for."""
        return {"NODE": self.labels.get("node", self.node), "NAMESPACE": "default", "NAME": self.pod}


NOT_RUN = {
    "kubectl -n gpuplan-system exec POD -- nvidia-smi": "a simulated GPU has no nvidia-smi",
    "kubectl -n gpuplan-system port-forward POD 9840 &": "the process that stands for the pod listens here already",
}
"""Commands of the pages that nothing here can answer, and why."""


def follow(stage: Stage, alert: str, row: Row) -> dict[str, str]:
    """Run the commands of the page's diagnosis in order; what each printed, by the command as it is on the page."""
    printed: dict[str, str] = {}
    pod = ""
    for line in page.diagnosis(alert):
        if line in NOT_RUN:
            continue
        values = {**row.values, "POD": pod}
        printed[line] = stage.shell(page.filled(line, values))
        pod = page.printed_pod(line, printed[line]) or pod
    return printed
