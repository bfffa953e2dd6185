"""The transport: frames over TCP and Unix sockets, with deadlines and back-pressure."""
