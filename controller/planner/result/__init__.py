"""What a pass returns: new layouts with as little change as possible, and which pod is placed where."""
