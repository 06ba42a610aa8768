"""Pure values of the controller: what planning reads and returns."""
