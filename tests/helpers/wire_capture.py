"""What passes over a network device, byte for byte: whether a text is in it."""

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator

ETH_P_IP = 0x0800
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_RCVBUFFORCE = 33
"""linux/if_packet.h, asm-generic/socket.h: Python has no names for them."""
KEPT_BYTES = 256 << 20
"""What the kernel keeps until it is read: a guest is sent faster than the text is looked for."""
PACKET_BYTES_MAX = 1 << 16
LOOKS_EVERY_S = 0.2


class WireCapture:
    """All TCP segments of IPv4 that arrive over the device: their bytes and how often the text is within one, by destination port."""

    def __init__(self, device: str, text: bytes) -> None:
        self._text = text
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, KEPT_BYTES)
        self._socket.settimeout(LOOKS_EVERY_S)
        self._socket.bind((device, ETH_P_IP))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="wire-capture", daemon=True)
        self.sent: Counter[int] = Counter()
        self.found: Counter[int] = Counter()
        self.lost = 0
        """Packets that were not read in time."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when all that has arrived is read."""
        self._ended.set()
        self._thread.join()
        _, self.lost = struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self._socket.close()

    def _read(self) -> None:
        buffer = memoryview(bytearray(PACKET_BYTES_MAX))
        while True:
            try:
                size, address = self._socket.recvfrom_into(buffer)
            except TimeoutError:
                if self._ended.is_set():
                    return
                continue
            if address[2] != socket.PACKET_OUTGOING:  # a device that leads to itself shows each packet twice
                self._count(bytes(buffer[:size]))

    def _count(self, packet: bytes) -> None:
        header = (packet[0] & 0x0F) * 4
        if packet[9] != socket.IPPROTO_TCP:
            return
        port = int.from_bytes(packet[header + 2 : header + 4], "big")
        data = packet[header + (packet[header + 12] >> 4) * 4 :]
        self.sent[port] += len(data)
        if times := data.count(self._text):
            self.found[port] += times


@contextlib.contextmanager
def captured(device: str, text: bytes) -> Iterator[WireCapture]:
    """The capture, which is complete afterwards."""
    capture = WireCapture(device, text)
    capture.start()
    try:
        yield capture
    finally:
        capture.stop()
