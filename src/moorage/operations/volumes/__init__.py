"""Volumes of a server: attach, detach, extend, swap, and snapshots that the volume service asks a host for."""
