"""Ids: string types with different names, so that type checkers find mix-ups.  UUIDs are in canonical form, with dashes."""

import os
import threading
from typing import NewType

ServerId = NewType("ServerId", str)
OperationId = NewType("OperationId", str)
HostId = NewType("HostId", str)  # the host's root resource provider, a UUID; the name people know is `host` (str)
CellId = NewType("CellId", str)
ProjectId = NewType("ProjectId", str)
UserId = NewType("UserId", str)
FlavorId = NewType("FlavorId", str)
ImageId = NewType("ImageId", str)
NetworkId = NewType("NetworkId", str)
SubnetId = NewType("SubnetId", str)
SegmentId = NewType("SegmentId", str)
PortId = NewType("PortId", str)
ProviderId = NewType("ProviderId", str)
ConsumerId = NewType("ConsumerId", str)
ConductorId = NewType("ConductorId", str)


class _Randomness:
    """Random bytes from the system, read for many ids at once: a system call for each id takes longer than the rest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = b""
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Drop the bytes: a forked child must not make its parent's ids."""
        self._lock = threading.Lock()
        self._left = b""

    def take(self) -> bytes:
        with self._lock:
            if not self._left:
                self._left = os.urandom(UUID_BYTES * FETCHED_AT_ONCE)
            taken, self._left = self._left[:UUID_BYTES], self._left[UUID_BYTES:]
            return taken


UUID_BYTES = 16
FETCHED_AT_ONCE = 64
_randomness = _Randomness()


def new_uuid() -> str:
    """A random UUID (version 4) in canonical form."""
    value = _randomness.take().hex()
    variant = "89ab"[int(value[16], 16) & 3]
    return f"{value[:8]}-{value[8:12]}-4{value[13:16]}-{variant}{value[17:20]}-{value[20:]}"
