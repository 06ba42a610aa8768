"""Faults of the controller, of plans and of pods, each with what its runbook shows and does."""

from tests.e2e.runbooks import obstacles
from tests.e2e.runbooks.in_pod import DEFECT
from tests.e2e.runbooks.row import Row
from tests.e2e.runbooks.stage import Stage

LARGE, WHOLE, MIDDLE = "nvidia.com/mig-7g.40gb", "nvidia.com/mig-7g.80gb", "nvidia.com/mig-3g.40gb"


def _fill(stage: Stage) -> None:
    stage.pod("holder", "one", WHOLE)
    stage.await_running("holder")
    stage.pod("waits-for-room", "one", WHOLE)


def _end_holder(stage: Stage) -> None:
    stage.shell("kubectl delete pod holder --now")
    stage.await_running("waits-for-room")


def _pause(stage: Stage) -> None:
    stage.set_plan("two", paused=True)
    stage.pod("waits-for-plan", "two", MIDDLE)


def _unpause(stage: Stage) -> None:
    stage.mitigate("GpuplanPodsBlocked", "kubectl patch gpp NODE", NODE="two")
    stage.await_running("waits-for-plan")


def _cordon(stage: Stage) -> None:
    stage.shell("kubectl cordon three")
    stage.pod("waits-long", "three", "nvidia.com/mig-2g.20gb")


def _uncordon(stage: Stage) -> None:
    stage.mitigate("GpuplanPodsWaitLong", "kubectl uncordon NODE", NODE="three")
    stage.await_running("waits-long")


DECISIONS = "curl -sH"

PODS = {
    "GpuplanNoCapacity": Row(
        labels={"reason": "WaitsForRelease"},
        inject=_fill,
        sees={DECISIONS: "WaitsForRelease", "get gpp": "one "},
        mitigate=_end_holder,
    ),
    "GpuplanPodsBlocked": Row(
        labels={"reason": "Blocked"},
        inject=_pause,
        sees={DECISIONS: "paused", "get gpp": "PAUSED"},
        mitigate=_unpause,
    ),
    "GpuplanPlanHeld": Row(
        labels={"node": "two", "by": "paused"},
        inject=lambda stage: None,  # paused for GpuplanPodsBlocked
        sees={"get gpp NODE -o yaml": "f:paused", DECISIONS: "paused"},
        mitigate=lambda stage: stage.mitigate("GpuplanPlanHeld", "kubectl patch gpp NODE", NODE="two"),
    ),
    "GpuplanPodsWaitLong": Row(
        labels={"resource": "nvidia.com/mig-2g.20gb"},
        inject=_cordon,
        pod="waits-long",
        sees={DECISIONS: "FilteredByScheduler", "-n NAMESPACE describe pod": "FilteredByScheduler"},
        mitigate=_uncordon,
    ),
    "GpuplanPodsCannotBeServed": Row(
        labels={"reason": "NeverFits"},
        inject=lambda stage: stage.pod("too-large", "four", LARGE),
        pod="too-large",
        sees={DECISIONS: "NeverFits", "-n NAMESPACE describe pod": "NeverFits"},
        mitigate=lambda stage: stage.shell("kubectl delete pod too-large --now"),
    ),
}


def _break_webhook(stage: Stage) -> None:
    obstacles.break_webhook(stage.cluster.api, "three")
    stage.pod("unwritten", "three", MIDDLE)


def _exempt(stage: Stage) -> None:
    obstacles.exempt_from_webhook(stage.cluster.api)
    stage.await_running("unwritten")


def _loosen(stage: Stage) -> None:
    """A definition that allows a value which this controller does not know."""
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/mode/enum"
    stage.shell(
        f'kubectl patch crd gpupartitionplans.gpuplan.dev --type=json -p \'[{{"op":"remove","path":"{path}"}}]\''
    )
    stage.eventually(lambda: stage.try_plan("two", mode="Sometimes"), "the definition to allow it")


def _tighten(stage: Stage) -> None:
    stage.set_plan("two", mode=None)
    printed = stage.mitigate("GpuplanUnreadableObjects", "kubectl apply --server-side")
    assert "serverside-applied" in printed, printed


CONTROLLER_LOGS = "-n gpuplan-system logs -l app.kubernetes.io/name=gpuplan-controller"

WRITES = {
    "GpuplanControllerCannotWrite": Row(
        labels={"stage": "write"},
        inject=_break_webhook,
        sees={
            CONTROLLER_LOGS: "plans.example.com",
            "get --raw '/readyz?verbose'": "readyz check passed",
            "auth can-i": "yes",
        },
        mitigate=_exempt,
    ),
    "GpuplanUnreadableObjects": Row(
        labels={"kind": "plan"},
        inject=_loosen,
        sees={CONTROLLER_LOGS: "plan two is left out", "get gpp": "two "},
        mitigate=_tighten,
    ),
}


def _ask_long(stage: Stage) -> None:
    """Seven pods that find room wait longer than they may: the window stays open for 8 s after the last of them.

    Whatever opened it before they came. A plan that cannot be written would start a pass sooner: in a round of its own.
    """
    stage.set_controller(batchWindowIdleSeconds=8, batchWindowTimeoutSeconds=60)
    for number in range(7):
        stage.pod(f"slow-{number}", "four", "nvidia.com/mig-1g.10gb")


def _shorten_window(stage: Stage) -> None:
    stage.await_running(*(f"slow-{number}" for number in range(7)))
    stage.set_controller(batchWindowIdleSeconds=1, batchWindowTimeoutSeconds=5)


DELIVERY = {
    "GpuplanDeliverySlow": Row(
        labels={},
        inject=_ask_long,
        sees={"get gpp": "four ", CONTROLLER_LOGS: "pass "},
        mitigate=_shorten_window,
    ),
}


def _upgrade_badly(stage: Stage) -> None:
    stage.restart_controller(**{DEFECT: "two"})


DEFECTS = {
    "GpuplanNodeLeftOut": Row(
        labels={},
        node="two",
        inject=_upgrade_badly,
        sees={
            "get events -A": "Planning this node failed",
            CONTROLLER_LOGS: "node two is left out, planning it failed",
            "get gpp NODE": "nodeName: two",
        },
        mitigate=lambda stage: stage.restart_controller(),
    ),
    "GpuplanPassesFailing": Row(
        labels={"stage": "report"},
        inject=lambda stage: None,  # of the same version
        sees={"-n gpuplan-system logs POD | grep": "report failed and will be tried again"},
        mitigate=lambda stage: stage.mitigate(
            "GpuplanPassesFailing", "kubectl -n gpuplan-system rollout restart deploy gpuplan-controller"
        ),
    ),
}


def _blind(stage: Stage) -> None:
    obstacles.take_right(stage.cluster.api, "clusterroles/gpuplan-controller", "pods", "list")
    stage.restart_controller()


WATCHES = {
    "GpuplanWatchFailing": Row(
        labels={"path": "/api/v1/pods"},
        inject=_blind,
        sees={
            "get --raw /api/v1/namespaces/gpuplan-system/pods/POD:9840/proxy/readyz": "/api/v1/pods",
            CONTROLLER_LOGS: "/api/v1/pods",
            "get --raw '/readyz?verbose'": "readyz check passed",
            "auth can-i": "no",
        },
        mitigate=lambda stage: stage.apply_again("30-rbac-controller.yaml"),
    ),
}


def _depose(stage: Stage) -> None:
    obstacles.take_right(stage.cluster.api, "namespaces/gpuplan-system/roles/gpuplan-controller", "leases", "update")


def _reinstate(stage: Stage) -> None:
    said = stage.mitigate("GpuplanNoLeader", "kubectl auth can-i update leases/gpuplan-controller")
    assert said.strip() == "no", said
    stage.apply_again("30-rbac-controller.yaml")


LEADER = {
    "GpuplanNoLeader": Row(
        labels={"namespace": ""},  # of no series
        inject=_depose,
        sees={
            "-n gpuplan-system get pods -l app.kubernetes.io/name=gpuplan-controller": "gpuplan-controller-",
            "-n gpuplan-system get lease gpuplan-controller -o yaml": "renewTime",
            CONTROLLER_LOGS: "is forbidden",
        },
        mitigate=_reinstate,
    ),
}
