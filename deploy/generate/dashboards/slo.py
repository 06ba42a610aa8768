"""The dashboard of service levels: pods whose partitions can be made get them soon.

Objective: 95 % of the pods that a pass finds a place for are bound within a minute. The time in which
there was no place for a pod does not count; neither do images and volumes.
"""

from deploy.generate.dashboards.panels import Query, lines, stat
from deploy.generate.dashboards.words import ALL, of_controller, quantile

OBJECTIVE = 0.95
LIMIT = "60.0"
"""As the histogram's label has it."""
READY = 'condition="Ready"'
IS_READY = f'{READY}, status="True"'
DELIVERY = "gpuplan_pod_delivery_duration_seconds"


def _met(window: str) -> str:
    in_time = f'sum(rate({DELIVERY}_bucket{{{ALL}, le="{LIMIT}"}}[{window}]))'
    return f"{in_time} / sum(rate({DELIVERY}_count{{{ALL}}}[{window}]))"


def _burn(window: str) -> str:
    return f"(1 - {_met(window)}) / (1 - {OBJECTIVE:g})"


ROWS = (
    (
        "Objective: 95 % of placed pods are bound within a minute",
        (
            stat(
                "Met in this range",
                "Share of pods that were bound in time. Empty while no placed pod started.",
                _met("$__range"),
                unit="percentunit",
                width=6,
            ),
            stat(
                "Error budget left",
                "1: nothing of it is spent; 0: the objective is just met; below 0 it is missed.",
                f"1 - {_burn('$__range')}",
                unit="percentunit",
                width=6,
            ),
            stat(
                "Pods delivered in this range",
                "Few pods say little about the share.",
                f"sum(increase({DELIVERY}_count{{{ALL}}}[$__range]))",
                width=6,
            ),
            stat(
                "Time with a leader",
                "Share of this range in which a controller led.",
                f"avg_over_time((sum(gpuplan_leader{{{ALL}}}) > bool 0)[$__range:])",
                unit="percentunit",
                width=6,
            ),
        ),
    ),
    (
        "Over time",
        (
            lines(
                "Burn rate",
                "How fast the error budget is spent; 1 spends it in exactly the range of the objective.",
                Query(expr=_burn("5m"), legend="5 minutes"),
                Query(expr=_burn("1h"), legend="1 hour"),
                width=12,
            ),
            lines(
                "Delivery",
                "From pending to bound, without the time in which there was no place.",
                *(Query(expr=quantile(of, DELIVERY), legend=f"p{of * 100:g}") for of in (0.5, 0.95, 0.99)),
                unit="s",
                width=12,
            ),
            lines(
                "Phases, p95",
                "Where delivered pods spend their time. start and unplaced do not count for the objective.",
                Query(expr=quantile(0.95, "gpuplan_pod_phase_duration_seconds", "phase"), legend="{{phase}}"),
                unit="s",
                width=12,
            ),
            lines(
                "Whole wait by supply, p95",
                "From pending to running. existing: partitions were there; new: they had to be made.",
                Query(expr=quantile(0.95, "gpuplan_pod_wait_duration_seconds", "supply"), legend="{{supply}}"),
                unit="s",
                width=12,
            ),
        ),
    ),
    (
        "What the objective rests on",
        (
            lines(
                "Agents that are heard",
                "Share of nodes with a plan.",
                Query(
                    expr=f"1 - avg({of_controller('gpuplan_agent_silent', 'node')})",
                    legend="heard",
                ),
                unit="percentunit",
                width=12,
            ),
            lines(
                "Plans that are Ready",
                "Share of nodes with a plan.",
                Query(
                    expr=f"(sum({of_controller('gpuplan_plan_condition', 'node', where=IS_READY)}) or vector(0))"
                    f" / count({of_controller('gpuplan_plan_condition', 'node', where=READY)})",
                    legend="Ready",
                ),
                unit="percentunit",
                width=12,
            ),
        ),
    ),
)
