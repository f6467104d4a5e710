"""Guests of this host reach the metadata service: one process for all bridges of ours (metadata_proxy.py), which runs on when the agent stops.

It is told each guest's addresses, its id and the signature of that, and is never told the secret.  A start finds it by its pid file; one of
another release of this program is replaced.

    <host's directory>/metadata/    conf (which the process's user alone reads), pid, log
"""

import hashlib
import hmac
import logging
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moorage import __version__
from moorage.drivers.libvirt import daemons
from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.metadata_proxy import Bridge, Conf, KnownGuest, read
from moorage.drivers.libvirt.metadata_routes import keep_local
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.system_users import SystemUser, system_user
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, VifData

STARTS_WITHIN_S = 120.0
"""It needs a tenth of a second; a machine that is busy with guests may let it wait."""
PROGRAM = "moorage.drivers.libvirt.metadata_proxy"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Seat:
    """An interface, and the guest that has it."""

    vif: VifData
    guest: GuestSpec


class MetadataKeeper:
    def __init__(self, room: Path, settings: Libvirt, secret: str) -> None:
        """`secret`: what the metadata service knows its proxies by."""
        self._room = room / "metadata"
        self._settings, self._secret = settings, secret.encode()
        self._untold = False
        """Whether the process could not be told the last time who is where."""

    async def keep(self, bridges: Mapping[str, Sequence[Seat]]) -> None:
        """Bridge → who is on it; nobody anywhere: it ends.

        A failure is said in the log and tried again by who looks next: guests do without for so long, and are not kept from starting.
        """
        await keep_local(bridges if self._settings.metadata_url else ())
        pid = self._pid()
        if not bridges or not self._settings.metadata_url:
            if pid is not None:
                await daemons.end(pid)
            shutil.rmtree(self._room, ignore_errors=True)
            self._untold = False
            return
        self._room.mkdir(parents=True, exist_ok=True)
        self._room.chmod(0o711)
        old = self._ran()
        self._untold = True
        try:
            user = system_user(self._settings.metadata_user)
            conf = self._conf(bridges, user)
        except (HostFailed, OSError) as failure:
            why = failure.private if isinstance(failure, HostFailed) else failure
            _log.error("guests cannot reach the metadata service: %s", why)
            return
        changed = daemons.write(self._path, msgspec.json.encode(conf).decode(), 0o400, user.uid)
        self._untold = False
        if pid is not None and old != (conf.version, conf.user):
            await daemons.end(pid)
            pid = None
        if pid is None:
            try:
                await run(
                    sys.executable, "-m", PROGRAM, str(self._path), limit_s=STARTS_WITHIN_S, code="vif_not_plugged"
                )
            except HostFailed as failure:
                _log.error("guests cannot reach the metadata service: %s", failure.private)
        elif changed:
            os.kill(pid, signal.SIGHUP)

    def is_lost(self) -> bool:
        """Whether it should run, and does not."""
        return self._untold or (self._path.exists() and self._pid() is None)

    @property
    def _path(self) -> Path:
        return self._room / "conf"

    def _pid(self) -> int | None:
        return daemons.pid_of(self._room / "pid", str(self._path)) if self._path.exists() else None

    def _ran(self) -> tuple[str, tuple[int, int] | None]:
        """What release of the program was started, and as whom."""
        try:
            conf = read(self._path)
        except (OSError, msgspec.MsgspecError):
            return "", None
        return conf.version, conf.user

    def _conf(self, bridges: Mapping[str, Sequence[Seat]], user: SystemUser) -> Conf:
        """Raises OSError."""
        settings = self._settings
        ca = Path(settings.metadata_ca_file).read_text() if settings.metadata_ca_file else ""
        by_bridge = {}
        for name, seats in sorted(bridges.items()):
            known = {seat.vif.port: self._known(seat.guest) for seat in seats}
            addresses = {each.address: known[seat.vif.port] for seat in seats for each in seat.vif.addresses}
            by_bridge[name] = Bridge(addresses, {seat.vif.mac: known[seat.vif.port] for seat in seats})
        places = str(self._room / "pid"), str(self._room / "log")
        return Conf(settings.metadata_url, *places, ca, __version__, (user.uid, user.gid), by_bridge)

    def _known(self, guest: GuestSpec) -> KnownGuest:
        signature = hmac.new(self._secret, guest.server.encode(), hashlib.sha256).hexdigest()
        return KnownGuest(guest.server, guest.project, signature)
