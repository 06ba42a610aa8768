"""The product on a real control plane, at size: `python -m benchmarks.scale` (see docs/performance.md)."""
