"""Who owns which field: FieldsV1 sets, managedFields, server-side apply."""
