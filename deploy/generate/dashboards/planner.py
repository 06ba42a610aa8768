"""The dashboard of the controller: how good its plans are, what they cost, and its own health."""

from deploy.generate.dashboards.panels import Query, lines, stat, table
from deploy.generate.dashboards.words import ALL, of_controller, quantile

RATE = "[$__rate_interval]"
PLACED = f"sum({of_controller('gpuplan_placed_pods', 'supply')})"
LIMIT = of_controller("gpuplan_placeable_pods_limit", "namespace")
CONTROLLER = f'{ALL}, job="gpuplan-controller"'


def _rate(metric: str, *by: str, where: str = ALL) -> str:
    return f"sum by ({', '.join(by)}) (rate({metric}{{{where}}}{RATE}))"


ROWS = (
    (
        "Now",
        (
            stat(
                "Leaders",
                "1 in an installation that works.",
                f"sum(gpuplan_leader{{{ALL}}})",
            ),
            stat(
                "Placed in the last pass",
                "Pending pods whose partitions are there, being made, or to be made.",
                PLACED,
            ),
            stat(
                "Gap to the bound",
                "No plan could place more pods than the bound. 0 proves that no plan is better; more proves nothing.",
                f"max({LIMIT}) - {PLACED}",
            ),
            stat(
                "Nodes left out",
                "Planning them raised an error: their plans stay as they are.",
                f"max(gpuplan_failed_nodes{{{ALL}}})",
                bad_from=1,
            ),
            stat(
                "Unreadable objects",
                "Objects that the controller cannot understand and leaves out.",
                f"sum({of_controller('gpuplan_unreadable_objects', 'kind')}) or vector(0)",
                bad_from=1,
            ),
            stat(
                "Events in the queue",
                "Events that wait to be written; the API server takes 20 a second.",
                f"max(gpuplan_events_queued{{{CONTROLLER}}})",
            ),
        ),
    ),
    (
        "Quality",
        (
            lines(
                "Placed pods and the bound",
                "Of the last pass, by where the partitions come from.",
                Query(expr=of_controller("gpuplan_placed_pods", "supply"), legend="{{supply}}"),
                Query(expr=f"max({LIMIT})", legend="bound"),
            ),
            lines(
                "Placed pods by phase of the planner",
                "Which phase gave them their node, per second. A pod counts in each pass until it is bound.",
                Query(expr=_rate("gpuplan_phase_placed_pods_total", "phase"), legend="{{phase}}"),
                stacked=True,
            ),
            lines(
                "Unplaced pods by reason",
                "Of the last pass, as far as they still wait.",
                Query(expr=f"{of_controller('gpuplan_unplaced_pods', 'reason')} > 0", legend="{{reason}}"),
                stacked=True,
            ),
        ),
    ),
    (
        "Cost",
        (
            lines(
                "Planning time",
                "Of one pass, from snapshot to result.",
                *(
                    Query(expr=quantile(of, "gpuplan_planning_duration_seconds"), legend=f"p{of * 100:g}")
                    for of in (0.5, 0.99)
                ),
                unit="s",
            ),
            lines(
                "Changes",
                "Plans written and GPUs whose layout they change, per second. Many without new pods: plans flap.",
                Query(expr=_rate("gpuplan_plans_applied_total", "namespace"), legend="plans"),
                Query(expr=_rate("gpuplan_gpus_changed_total", "namespace"), legend="GPUs"),
                Query(expr=_rate("gpuplan_passes_total", "namespace"), legend="passes"),
            ),
            lines(
                "From plan to ready",
                "Until every GPU of a node is settled, p95; and the write of the plan.",
                Query(expr=quantile(0.95, "gpuplan_plan_to_ready_duration_seconds"), legend="ready"),
                Query(expr=quantile(0.95, "gpuplan_plan_apply_duration_seconds"), legend="write"),
                unit="s",
            ),
        ),
    ),
    (
        "The controller",
        (
            lines(
                "Errors by stage",
                "What went wrong and is tried again, per second.",
                Query(expr=_rate("gpuplan_errors_total", "stage"), legend="{{stage}}"),
            ),
            lines(
                "Requests to the API server by code",
                "Of the controller. `none`: no answer came.",
                Query(
                    expr=_rate("gpuplan_api_requests_total", "method", "code", where=CONTROLLER),
                    legend="{{method}} {{code}}",
                ),
                unit="reqps",
            ),
            lines(
                "Answer of the API server",
                "Time until the head of the answer, p99 by method.",
                Query(
                    expr=quantile(
                        0.99, "gpuplan_api_request_duration_seconds", "method", where='job="gpuplan-controller"'
                    ),
                    legend="{{method}}",
                ),
                unit="s",
            ),
            lines(
                "Stale watches",
                "How long the copy of a path was not kept up to date. After a minute nothing is planned.",
                Query(expr=f"max by (path) (gpuplan_watch_stale_seconds{{{CONTROLLER}}})", legend="{{path}}"),
                unit="s",
            ),
            lines(
                "Events",
                "Queued, and lost per second.",
                Query(expr=f"max(gpuplan_events_queued{{{CONTROLLER}}})", legend="queued"),
                Query(expr=_rate("gpuplan_events_lost_total", "namespace", where=CONTROLLER), legend="lost"),
            ),
            table(
                "Builds",
                "What runs where.",
                f"count by (program, version, python) (gpuplan_build_info{{{ALL}}})",
                ("program", "version", "python"),
                value="processes",
            ),
        ),
    ),
)
