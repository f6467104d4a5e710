"""Sockets of the metadata addresses on single bridges: by the socket it is known which network a guest is on."""

import socket

PORT = 80
ADDRESS, ADDRESS_V6 = "169.254.169.254", "fe80::a9fe:a9fe"
BACKLOG = 128
IP_TRANSPARENT, IPV6_FREEBIND = 19, 78
"""The IPv4 address is on no device (metadata_routes.py)."""


def index_of(device: str) -> int | None:
    try:
        return socket.if_nametoindex(device)
    except OSError:
        return None


def sockets_on(bridge: str, index: int) -> list[socket.socket]:
    """Raises OSError."""
    made: list[socket.socket] = []
    try:
        for family, where, option in (
            (socket.AF_INET, (ADDRESS, PORT), (socket.IPPROTO_IP, IP_TRANSPARENT)),
            (socket.AF_INET6, (ADDRESS_V6, PORT, 0, index), (socket.IPPROTO_IPV6, IPV6_FREEBIND)),
        ):
            try:
                made.append(socket.socket(family, socket.SOCK_STREAM))
            except OSError:  # a machine without IPv6
                continue
            made[-1].setblocking(False)
            made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, bridge.encode())
            made[-1].setsockopt(*option, 1)
            if family is socket.AF_INET6:
                made[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made[-1].bind(where)
            made[-1].listen(BACKLOG)
    except OSError:
        for each in made:
            each.close()
        raise
    return made
