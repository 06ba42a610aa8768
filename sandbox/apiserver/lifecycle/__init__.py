"""What happens to an object when it is created, updated, patched, applied, bound and deleted."""
