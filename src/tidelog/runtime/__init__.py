"""The shells of a cluster: storage node, metadata node, operator, and the process that runs all."""
