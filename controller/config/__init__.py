"""Reads what an administrator sets: settings, the scheduler's configuration, known geometries."""
