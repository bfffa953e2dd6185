"""What people ask of a cluster, carried out on whichever node they ask."""
