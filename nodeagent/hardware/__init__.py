"""GPUs as the driver shows them, and what on them a pod can hold."""
