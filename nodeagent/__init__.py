"""Carries out the plan of one node on its GPUs, advertises the result to the kubelet, and reports status."""
