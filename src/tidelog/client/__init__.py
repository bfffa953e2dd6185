"""A log that a node serves, as if it were here."""
