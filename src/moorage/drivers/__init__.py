"""ROOM 8 · guests.  A driver makes and unmakes them; it knows nothing of turns, messages or the region."""
