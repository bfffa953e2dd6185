"""Tidelog's cluster against the logs that one would take instead, in the same run."""
