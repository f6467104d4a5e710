"""A cell's database: the servers that live there, what was done to them, and the hosts."""
