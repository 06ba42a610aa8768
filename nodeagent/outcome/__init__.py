"""What became of a pass: the state of each GPU and partition, why, and whether the node can be handed back."""
