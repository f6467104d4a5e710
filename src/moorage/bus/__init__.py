"""ROOM 6 · messages.  The bus is a hint, never an authority: it may lose, repeat and reorder what it carries."""
