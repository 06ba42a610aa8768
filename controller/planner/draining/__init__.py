"""GPUs of which partitions are drained for pods that have waited long: which go on, which end, and new ones."""
