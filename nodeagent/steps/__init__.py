"""What to do on one GPU now, written down before each step, and done."""
