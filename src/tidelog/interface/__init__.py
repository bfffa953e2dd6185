"""What every way to use a log shares: receipts and records, how appends are made, who they go to.

An embedded log and a client of a server show the same face; this package is what it is made of.
"""
