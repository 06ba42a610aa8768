"""A simulated GPU cluster in one process tree: stand-ins for the API server, the hardware and the kubelet."""
