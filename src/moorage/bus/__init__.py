"""Messages between processes.  A message is a hint and never an authority: the bus may lose, repeat and reorder messages."""
