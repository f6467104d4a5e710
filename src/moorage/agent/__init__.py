"""The agent, which runs on every host.  It receives commands, checks their turns, executes them, and keeps each result until it is
acknowledged (RULES §10)."""
