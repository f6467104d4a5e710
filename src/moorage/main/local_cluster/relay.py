"""Makes ports of this machine's loopback reachable at the loopback of namespaces: `relay NAMESPACE,… PORT,…`.

It prints a line when it listens, and runs until it is ended.  A socket stays in the namespace in which it was made, so one process can
accept connections in one namespace and connect in another.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
from functools import partial

CLONE_NEWNET = 0x40000000
CHUNK_BYTES = 1 << 16


def listening(namespace: str, ports: list[int]) -> list[tuple[socket.socket, int]]:
    """Open listening sockets in a namespace. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    home, inner = os.open("/proc/thread-self/ns/net", os.O_RDONLY), os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(inner, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), namespace)
        return [(socket.create_server(("127.0.0.1", port)), port) for port in ports]
    finally:
        if libc.setns(home, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "home")
        os.close(home)
        os.close(inner)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def carry(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        upstream, back = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(pump(reader, back), pump(upstream, writer))
    for each in (writer, back):
        each.close()


async def main(namespaces: list[str], ports: list[int]) -> None:
    sockets = [each for name in namespaces for each in listening(name, ports)]
    servers = [await asyncio.start_server(partial(carry, port), sock=each) for each, port in sockets]
    print("ready", flush=True)
    await asyncio.gather(*(each.serve_forever() for each in servers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1].split(","), [int(each) for each in sys.argv[2].split(",")]))
