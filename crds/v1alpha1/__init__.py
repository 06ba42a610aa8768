"""Version v1alpha1 of the API: it changes by adding optional fields only; a tightened rule breaks stored objects."""
