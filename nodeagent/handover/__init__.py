"""What agent and device plugin share: the files by which they talk, and what both check on the node."""
