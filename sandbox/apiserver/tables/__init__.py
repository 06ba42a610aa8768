"""Server-side tables: the columns of `kubectl get`."""
