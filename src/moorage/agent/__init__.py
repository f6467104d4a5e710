"""ROOM 7 · on every host.  Hears a command, looks at its turn, obeys, and keeps the answer until it was taken (RULES §10)."""
