"""What a pass tells the world: status and conditions of the plan, Events, metrics, pages."""
