"""The HTTP face: paths, representations, watches and documents about the API itself."""
