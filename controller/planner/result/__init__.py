"""What a pass returns: new layouts with as little change as possible, and who is placed where."""
