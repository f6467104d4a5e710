"""Ports that tests pick stay reserved: the kernel gives them to no connection, and no other process picks them."""

import socket
from pathlib import Path

from moorage.main.local_cluster.ports import EPHEMERAL, EPHEMERAL_FROM, PORTS_OF_A_PROCESS, PortRow, free_ports


def test_free_ports_differ_and_are_below_the_ephemeral_range() -> None:
    found = free_ports(20) + free_ports(20)
    assert len(set(found)) == 40
    lowest = int(EPHEMERAL.read_text().split()[0]) if EPHEMERAL.exists() else EPHEMERAL_FROM
    assert max(found) < lowest


def test_a_port_range_is_reserved_once_and_skips_used_ports(tmp_path: Path) -> None:
    mine, others = PortRow(tmp_path), PortRow(tmp_path)
    first = mine.next()
    assert first is not None
    row = {mine.next() for _ in range(PORTS_OF_A_PROCESS)}
    assert first in row, "round and round"
    assert others.next() not in row
    with socket.create_server(("127.0.0.1", first)):
        assert first not in {mine.next() for _ in range(2 * PORTS_OF_A_PROCESS)}
