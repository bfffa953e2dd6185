"""A served node: an embedded engine behind sockets."""
