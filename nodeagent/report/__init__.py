"""What a pass reports: status and conditions of the plan, Events, metrics, pages."""
