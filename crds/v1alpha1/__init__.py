"""Version v1alpha1 of the API. It changes by adding optional fields only; a tightened rule would break stored objects."""
