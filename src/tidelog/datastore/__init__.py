"""A datastore: entries of an application, in epochs, on this machine and on its replicas."""
