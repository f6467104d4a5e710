"""Commands for people: they speak HTTP to a running cloud, as any client does."""
