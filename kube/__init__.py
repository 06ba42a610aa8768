"""Thin Kubernetes plumbing over the official client; knows no word of GPUs."""
