"""What the watches have brought and what was written since: the only mutable state of the controller."""
