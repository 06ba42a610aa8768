"""Who uses what: pods, Node and kubelet as they are now, the memory of earlier ones, and the verdict on each id."""
