"""Evacuation of servers whose host is dead, and the cleanup of that host's records afterwards."""
