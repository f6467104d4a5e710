"""How the servers of a host or of a whole cell leave it, each by an operation of its own."""
