"""The dashboard of the whole cluster: supply and demand, time to a GPU, fragmentation, what is unhealthy."""

from deploy.generate.dashboards.panels import Query, lines, stat, table
from deploy.generate.dashboards.words import ALL, TO_NODE, TO_RUNBOOK, of_controller, quantile

NODES = f'{ALL}, node=~"$node"'
MEMORY_USED = 'state="used"'
USED = 'state="Used"'
ON_NODE = 'node=~"$node"'
OLDEST = of_controller("gpuplan_oldest_pending_pod_seconds", "resource")

ROWS = (
    (
        "Now",
        (
            stat(
                "Pending pods",
                "Pods without a node that request partitions. Below: why they wait.",
                f"sum({of_controller('gpuplan_pending_pods', 'resource', 'reason')}) or vector(0)",
            ),
            stat(
                "Oldest pending pod",
                "How long the oldest pod that demands partitions has waited. None where no pod waits.",
                f"max({OLDEST})",
                unit="s",
                bad_from=3600,
            ),
            stat(
                "Partitions in use",
                "Share of all partitions that pods hold.",
                f"(sum({of_controller('gpuplan_partitions', 'profile', where=USED)}) or vector(0))"
                f" / sum({of_controller('gpuplan_partitions', 'profile', 'state')})",
                unit="percentunit",
            ),
            stat(
                "GPU memory in use",
                "Share of the memory of all GPUs that is in partitions of pods.",
                f"(sum({of_controller('gpuplan_gpu_memory_bytes', 'model', where=MEMORY_USED)}) or vector(0))"
                f" / sum({of_controller('gpuplan_gpu_memory_bytes', 'model', 'state')})",
                unit="percentunit",
            ),
            stat(
                "GPUs",
                "GPUs that agents report.",
                f"sum(gpuplan_agent_gpus{{{NODES}}})",
            ),
            stat(
                "Unhealthy GPUs",
                "GPUs that report a fault or cannot be read. Pods that hold partitions there must be replaced by hand.",
                f"sum(gpuplan_agent_gpu_healthy{{{NODES}}} == bool 0)",
                bad_from=1,
            ),
            stat(
                "Silent agents",
                "Nodes whose agent the controller does not hear: nothing is planned there.",
                f"sum({of_controller('gpuplan_agent_silent', 'node', where=ON_NODE)})",
                bad_from=1,
            ),
        ),
    ),
    (
        "Supply and demand",
        (
            lines(
                "Pending pods by reason",
                "What the last pass decided. Placed: partitions are there or being made. Meanings: docs/conditions.md.",
                Query(
                    expr=f"sum by (reason) ({of_controller('gpuplan_pending_pods', 'resource', 'reason')})",
                    legend="{{reason}}",
                ),
                stacked=True,
            ),
            lines(
                "Partitions by state",
                "Pods get Free ones at once. Pending, Withdrawn and Unknown ones should be few, and soon over.",
                Query(
                    expr=f"sum by (state) ({of_controller('gpuplan_partitions', 'profile', 'state')})",
                    legend="{{state}}",
                ),
                stacked=True,
            ),
            lines(
                "GPU memory by state",
                "used: in partitions of pods. idle: in others. free: in none.",
                Query(
                    expr=f"sum by (state) ({of_controller('gpuplan_gpu_memory_bytes', 'model', 'state')})",
                    legend="{{state}}",
                ),
                unit="bytes",
                stacked=True,
            ),
            lines(
                "Waiting pods by namespace",
                "Which team waits.",
                Query(expr=of_controller("gpuplan_waiting_pods", "namespace"), legend="{{namespace}}"),
                stacked=True,
            ),
            table(
                "Paused and Manual plans",
                "Nodes where a person keeps the controller from planning. One that was forgotten is capacity lost.",
                of_controller("gpuplan_held_plan", "node", "by"),
                ("node", "by"),
            ),
            lines(
                "Pending pods by resource",
                "What is short.",
                Query(
                    expr=f"sum by (resource) ({of_controller('gpuplan_pending_pods', 'resource', 'reason')})",
                    legend="{{resource}}",
                ),
                stacked=True,
            ),
        ),
    ),
    (
        "Time to a GPU",
        (
            lines(
                "Delivery",
                "From pending to bound, without the time in which there was no place. Empty while no "
                "placed pod starts.",
                *(
                    Query(expr=quantile(of, "gpuplan_pod_delivery_duration_seconds"), legend=f"p{of * 100:g}")
                    for of in (0.5, 0.95)
                ),
                unit="s",
            ),
            lines(
                "Where the time goes",
                "Mean seconds of each phase of a pod's way. unplaced: there was no place. start: images and volumes.",
                Query(
                    expr=f"sum by (phase) (rate(gpuplan_pod_phase_duration_seconds_sum{{{ALL}}}[$__rate_interval]))"
                    f" / sum by (phase) (rate(gpuplan_pod_phase_duration_seconds_count{{{ALL}}}[$__rate_interval]))",
                    legend="{{phase}}",
                ),
                unit="s",
            ),
            lines(
                "Oldest pending pod by resource",
                "Of pods that planning serves or gives a reason for.",
                Query(expr=OLDEST, legend="{{resource}}"),
                unit="s",
            ),
        ),
    ),
    (
        "What could still be placed",
        (
            table(
                "Placeable now",
                "How many instances of each profile could still be made or are idle, each profile alone.",
                of_controller("gpuplan_placeable_partitions", "model", "profile", where='model=~"$model"'),
                ("model", "profile"),
                value="instances",
            ),
            table(
                "Largest profile",
                "The largest MIG instance that fits somewhere now, per model.",
                of_controller("gpuplan_largest_placeable_profile", "model", "profile", where='model=~"$model"'),
                ("model", "profile"),
            ),
            lines(
                "Fragmentation",
                "Share of the memory slices that are free, but not for the largest instance that fits on their GPU.",
                Query(
                    expr=of_controller("gpuplan_fragmentation_ratio", "model", where='model=~"$model"'),
                    legend="{{model}}",
                ),
                unit="percentunit",
            ),
        ),
    ),
    (
        "What is wrong",
        (
            table(
                "Firing alerts",
                "Each alert has a runbook: click its name. Empty while all is well, or where the rules are not loaded.",
                'ALERTS{alertname=~"Gpuplan.+", alertstate="firing"}',
                ("alertname", "severity", "node"),
                links=(TO_RUNBOOK,),
            ),
            table(
                "Plans that are not Ready",
                "Status and reason of the condition Ready where it is not True. Click for the node.",
                of_controller(
                    "gpuplan_plan_condition",
                    "node",
                    "status",
                    "reason",
                    where='condition="Ready", status!="True", node=~"$node"',
                ),
                ("node", "status", "reason"),
                links=(TO_NODE,),
            ),
            table(
                "GPUs that are Failed or unhealthy",
                "State and reason. The message is in kubectl describe gpp. Click for the node.",
                f'gpuplan_agent_gpu_state{{{NODES}, state="Failed"}} or '
                f'gpuplan_agent_gpu_state{{{NODES}, reason="Unhealthy"}}',
                ("node", "gpu", "state", "reason"),
                links=(TO_NODE,),
            ),
        ),
    ),
)
