"""The region's database: everything that does not depend on a server's cell."""
