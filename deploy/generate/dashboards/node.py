"""The dashboard of one node: its GPUs' partitions over time, what was changed, its agent's health."""

from deploy.generate.dashboards.panels import GREEN, RED, Query, lines, stat, table, timeline
from deploy.generate.dashboards.words import (
    ALL,
    GPU_STATES,
    PARTITION_STATES,
    TO_RUNBOOK,
    gpu_state_codes,
    of_controller,
    quantile,
)

HERE = f'{ALL}, node="$node"'
RATE = "[$__rate_interval]"


def _rate(metric: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) (increase({metric}{{{HERE}}}{RATE}))"


ROWS = (
    (
        "Now",
        (
            stat(
                "Agent silent",
                "1 while the controller does not hear the agent: nothing is planned here.",
                of_controller("gpuplan_agent_silent", "node", where='node="$node"'),
                bad_from=1,
            ),
            stat(
                "Heartbeat age",
                "Since the API server took the agent's last heartbeat. Silent from 60 s on.",
                f"max(gpuplan_agent_heartbeat_age_seconds{{{HERE}}})",
                unit="s",
                bad_from=60,
            ),
            stat(
                "Confirmed generation",
                "Of the plan: what was confirmed last on every GPU.",
                f"max(gpuplan_agent_confirmed_generation{{{HERE}}})",
            ),
            stat(
                "Unhealthy GPUs",
                "GPUs that report a fault or cannot be read.",
                f"sum(gpuplan_agent_gpu_healthy{{{HERE}}} == bool 0)",
                bad_from=1,
            ),
            stat(
                "Oldest withdrawn",
                "How long a partition has been off the kubelet's list before it is destroyed or comes back.",
                f"max(gpuplan_agent_oldest_withdrawn_seconds{{{HERE}}})",
                unit="s",
                bad_from=600,
            ),
            stat(
                "Refused pods, last hour",
                "Pods that the kubelet refused because they were bound to a partition that was just withdrawn.",
                f"sum(increase(gpuplan_agent_refused_pods_total{{{HERE}}}[1h]))",
                bad_from=1,
            ),
        ),
    ),
    (
        "GPUs",
        (
            timeline(
                "Partitions",
                "Each partition's state over time: profile and slot, which is the first memory slice of a MIG "
                "instance or the number of an MPS slice.",
                Query(
                    expr=f"max by (gpu, slot, profile) (gpuplan_agent_partition_state{{{HERE}}})",
                    legend="GPU {{gpu}} · {{slot}} · {{profile}}",
                ),
                PARTITION_STATES,
                width=24,
                height=14,
            ),
            timeline(
                "State of each GPU",
                "Ready: hardware, device plugin, kubelet and Node agree with the plan.",
                Query(expr=gpu_state_codes(HERE), legend="GPU {{gpu}}"),
                GPU_STATES,
                width=12,
            ),
            timeline(
                "Health of each GPU",
                "Faulty: the driver reports a fault, or cannot read the GPU.",
                Query(expr=f"max by (gpu) (gpuplan_agent_gpu_healthy{{{HERE}}})", legend="GPU {{gpu}}"),
                {1: ("OK", GREEN), 0: ("faulty", RED)},
                width=12,
            ),
        ),
    ),
    (
        "Plan",
        (
            table(
                "GPUs",
                "State and reason now; the message is in kubectl describe gpp.",
                f"max by (gpu, state, reason) (gpuplan_agent_gpu_state{{{HERE}}})",
                ("gpu", "state", "reason"),
                height=12,
            ),
            table(
                "Conditions",
                "Of the node's plan. Meanings: docs/conditions.md.",
                of_controller("gpuplan_plan_condition", "condition", "status", "reason", where='node="$node"'),
                ("condition", "status", "reason"),
                height=12,
            ),
            table(
                "Firing alerts",
                "Of this node. Each has a runbook: click its name. Empty while all is well.",
                'ALERTS{alertname=~"Gpuplan.+", alertstate="firing", node="$node"}',
                ("alertname", "severity"),
                links=(TO_RUNBOOK,),
                height=12,
            ),
        ),
    ),
    (
        "Changes",
        (
            lines(
                "MIG instances created and destroyed",
                "Driver calls that succeeded.",
                Query(expr=_rate("gpuplan_agent_steps_total", "action"), legend="{{action}}"),
            ),
            lines(
                "Time of a change, p95 by phase",
                "actuate: driver and config; register: the kubelet; allocatable: the Node, ten seconds where the "
                "kubelet writes it. Empty while nothing changes.",
                Query(
                    expr=quantile(0.95, "gpuplan_agent_change_phase_duration_seconds", "phase", where='node="$node"'),
                    legend="{{phase}}",
                ),
                unit="s",
            ),
            lines(
                "Errors by kind",
                "driver-in-use and driver-changed are no failures: the agent waits, or observes again.",
                Query(expr=_rate("gpuplan_agent_errors_total", "kind"), legend="{{kind}}"),
                Query(expr=_rate("gpuplan_agent_drift_repaired_total", "action"), legend="drift repaired: {{action}}"),
            ),
        ),
    ),
    (
        "Agent",
        (
            lines(
                "Passes",
                "Passes that completed, per second. 0: the agent hangs, or raises an error in each.",
                Query(
                    expr=f"sum(rate(gpuplan_agent_pass_duration_seconds_count{{{HERE}}}{RATE}))",
                    legend="passes",
                ),
            ),
            lines(
                "Requests to the API server by code",
                "`none`: no answer came.",
                Query(expr=f"sum by (code) (rate(gpuplan_api_requests_total{{{HERE}}}{RATE}))", legend="{{code}}"),
                unit="reqps",
            ),
            timeline(
                "MPS daemons",
                "Of GPUs with slices. Empty on a node without.",
                Query(expr=f"max by (gpu) (gpuplan_agent_mps_daemon_ready{{{HERE}}})", legend="GPU {{gpu}}"),
                {1: ("answers", GREEN), 0: ("does not answer", RED)},
            ),
            lines(
                "Stale watches",
                "How long the copy of a path was not kept up to date. 0 while a watch is open.",
                Query(expr=f"max by (path) (gpuplan_watch_stale_seconds{{{HERE}}})", legend="{{path}}"),
                unit="s",
            ),
        ),
    ),
)
