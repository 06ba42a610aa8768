"""Writes to the API server and reports: plans, nominations, conditions, Events, metrics."""
