"""Pending pods in, GPUPartitionPlan specs out."""
