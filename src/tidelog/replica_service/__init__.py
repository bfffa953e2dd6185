"""The replica service: the peer of an application that embeds a datastore."""
