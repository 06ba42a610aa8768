"""Parse objects of the API server into values, and encode the items of plans."""
