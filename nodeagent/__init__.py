"""One node's plan in, MIG instances and MPS slices out."""
