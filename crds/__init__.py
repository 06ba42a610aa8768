"""The API: pydantic types, the names used in it, and the CRD YAML generated from them."""
