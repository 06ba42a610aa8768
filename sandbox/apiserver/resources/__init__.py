"""What the server serves: builtin kinds and those that CustomResourceDefinitions add."""
