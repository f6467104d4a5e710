"""Lets a guest write again whose agent of the host may have been killed: `python -m moorage.drivers.libvirt.thawing URI SERVER WHY SECONDS FILE`.

It waits for so long, and then thaws the guest, if its record (FILE) still says that it was made still for this purpose: somebody else may have
made it still since, for another one.  A daemon that is out is asked again.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from moorage.drivers.libvirt.library import library
from moorage.drivers.libvirt.records import GuestRecord

TRIES_FOR_S, AGAIN_S = 600.0, 2.0


def is_still_for(file: Path, why: str) -> bool:
    """Whether the record says so; one that is gone does not, and one that cannot be read may."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=GuestRecord).frozen_for == why
    except FileNotFoundError:
        return False
    except (OSError, msgspec.MsgspecError):
        return True


def thaw(uri: str, server: str) -> bool:
    """Whether it is over: the guest writes again, or is not there. One that is paused or saved is thawed when it goes on."""
    libvirt = library()
    try:
        connection = libvirt.open(uri)
        try:
            connection.lookupByUUIDString(server).fsThaw(None, 0)
        finally:
            connection.close()
    except libvirt.libvirtError as failure:
        return bool(failure.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN)
    return True


def main(words: Sequence[str]) -> int:
    """Who began it goes on at once; the rest is done by a process that nobody waits for."""
    if os.fork():
        return 0
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    return wait_and_thaw(*words)


def wait_and_thaw(uri: str, server: str, why: str, left_s: str, file: str) -> int:
    """0: the guest writes again, or is still for another purpose, or is not there."""
    time.sleep(float(left_s))
    ends = time.monotonic() + TRIES_FOR_S
    while is_still_for(Path(file), why):
        if thaw(uri, server):
            return 0
        if time.monotonic() >= ends:
            return 1
        time.sleep(AGAIN_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
