"""Structural schemas: compiled once, then used to prune, default, validate, evaluate CEL rules and find owners."""
