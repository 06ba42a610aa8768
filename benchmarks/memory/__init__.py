"""What the controller holds in memory: `python -m benchmarks.memory` (see docs/performance.md)."""
