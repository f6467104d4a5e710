"""Who holds what, on which host: the picture in memory, and claims that SQL decides."""
