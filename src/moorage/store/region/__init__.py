"""The region's database: what is true whichever cell a server is in."""
