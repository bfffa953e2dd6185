"""The log as a source and a sink of Spark."""
