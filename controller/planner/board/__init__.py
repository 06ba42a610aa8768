"""The mutable state of one pass: what nodes and devices have left, and which pending pod is assigned where."""
