"""Ports of this machine for guests' serial consoles."""

import contextlib
import socket
from collections.abc import Collection

from moorage.drivers.libvirt.settings import Libvirt
from moorage.model.errors import HostFailed


def free_port(settings: Libvirt, taken: Collection[int]) -> int:
    """Return a port that no guest has and nobody uses now. Raises HostFailed (`host_full`)."""
    first, end = settings.serial_ports
    for port in range(first, end):
        if port in taken:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.address, port))
            return port
    raise HostFailed("the host has no port left for a console", private=f"{first} to {end}", code="host_full")
