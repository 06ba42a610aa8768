"""What pods can get: the device plugin is told, the offer confirmed, the scheduler kept off what goes away."""
