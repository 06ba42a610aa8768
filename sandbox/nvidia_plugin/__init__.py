"""NVIDIA's device plugin v0.20.0 on one simulated node: its three programs, each in a pod with its config-manager.

What each program does was measured or read in its source; `node` runs them all. Must share no code with the product's
own handling of that plugin: what both sides misunderstood alike, no test would find.
"""
