"""How many pods any plan could place at most."""
