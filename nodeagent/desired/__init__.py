"""What the plan desires of each GPU: the object as read, the item that counts, the exact target."""
