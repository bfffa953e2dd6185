"""A ledger on Tidelog and Spark, checked against a plain model: see README.md beside this file."""
