"""Diagnostics of a running guest: `GET /servers/{id}/diagnostics`, in the fixed form of 2.48.

A value that a driver cannot read is None.  It is sent in messages: fields are only ever added, with defaults.
"""

import msgspec


class CpuDiagnostics(msgspec.Struct, frozen=True):
    id: int | None = None
    time: int | None = None
    """Nanoseconds of the processor's time."""
    utilisation: int | None = None
    """Per cent."""


class NicDiagnostics(msgspec.Struct, frozen=True):
    mac_address: str | None = None
    rx_octets: int | None = None
    rx_errors: int | None = None
    rx_drop: int | None = None
    rx_packets: int | None = None
    rx_rate: int | None = None
    """Received bytes per second."""
    tx_octets: int | None = None
    tx_errors: int | None = None
    tx_drop: int | None = None
    tx_packets: int | None = None
    tx_rate: int | None = None


class DiskDiagnostics(msgspec.Struct, frozen=True):
    read_bytes: int | None = None
    read_requests: int | None = None
    write_bytes: int | None = None
    write_requests: int | None = None
    errors_count: int | None = None


class MemoryDiagnostics(msgspec.Struct, frozen=True):
    maximum: int | None = None
    """MiB."""
    used: int | None = None


class GuestDiagnostics(msgspec.Struct, frozen=True):
    state: str
    """pending, running, paused, shutdown, crashed or suspended."""
    driver: str
    hypervisor: str | None = None
    hypervisor_os: str | None = None
    uptime: int | None = None
    """Seconds since the guest began to run."""
    config_drive: bool | None = None
    cpu_details: tuple[CpuDiagnostics, ...] = ()
    nic_details: tuple[NicDiagnostics, ...] = ()
    disk_details: tuple[DiskDiagnostics, ...] = ()
    memory_details: MemoryDiagnostics = MemoryDiagnostics()
