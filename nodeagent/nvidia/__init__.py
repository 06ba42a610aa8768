"""NVIDIA's device plugin as the backend of a node: when its config may change, and what proves that it is in force."""
