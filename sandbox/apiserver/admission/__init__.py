"""The defaults and rules that the API server knows for single kinds."""
