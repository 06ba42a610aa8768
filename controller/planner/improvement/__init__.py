"""Moves that place more pods, or the same pods with fewer changed GPUs."""
