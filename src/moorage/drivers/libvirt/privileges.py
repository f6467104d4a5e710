"""Gives root's rights up, but for single capabilities of Linux: with what the kernel offers, so that a small process needs no library for it."""

import ctypes
import os
from collections.abc import Iterable

NET_BIND_SERVICE, NET_RAW = 10, 13
"""Of Linux's capabilities: ports below 1,024, and addresses that are on no device."""
SET_KEEP_CAPABILITIES, SET_NO_NEW_PRIVILEGES = 8, 38
CAPABILITIES_VERSION = 0x2008_0522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def become(uid: int, gid: int, capabilities: Iterable[int]) -> None:
    """For good, and before there are threads: of root's rights only these capabilities (below 32) are left. Raises OSError."""
    kernel = ctypes.CDLL(None, use_errno=True)
    _checked(kernel.prctl(SET_KEEP_CAPABILITIES, 1, 0, 0, 0))
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    mask = sum(1 << each for each in capabilities)
    data = (_Data * 2)(_Data(mask, mask, 0), _Data(0, 0, 0))
    _checked(kernel.capset(ctypes.byref(_Header(CAPABILITIES_VERSION, 0)), data))
    _checked(kernel.prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0))


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
