"""How containers get their devices: a specification for the container runtime, and whether that runtime reads it."""
