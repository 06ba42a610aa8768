"""Which priority level is placed when, and with which steps."""
