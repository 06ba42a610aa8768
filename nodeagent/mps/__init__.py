"""Supervisor of a node's MPS control daemons, a process of its own that outlives agent and device plugin."""
