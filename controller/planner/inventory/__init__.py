"""What there is to plan with: nodes in groups, GPUs that may be changed, partitions that need no cut."""
