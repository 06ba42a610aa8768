"""Objects in memory: collections with their history, lists with pages, and selectors."""
