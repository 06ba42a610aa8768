"""Parses objects of the API server into values, and encodes the items of plans."""
