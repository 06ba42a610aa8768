"""The steps by which pending pods get a place; which step comes when is decided in `strategy`."""
