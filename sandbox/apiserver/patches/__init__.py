"""The three patch types beside server-side apply: JSON merge patch, JSON patch, strategic merge patch."""
