"""Interfaces of a server: attach, detach, fixed addresses, and what the network service changed by itself (port_sync)."""
