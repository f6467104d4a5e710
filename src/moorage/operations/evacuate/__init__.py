"""Evacuation of servers whose host is dead, and what becomes of that host's records afterwards."""
