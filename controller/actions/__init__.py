"""Write to the API server and report: plans, nominations, conditions, Events, metrics."""
