"""Thin Kubernetes plumbing over the official client; knows nothing about GPUs."""
