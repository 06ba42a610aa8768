"""What is written of the outcome: status and conditions of the plan, Events, metrics, the log."""
