"""The doors through which the front desk begins operations; what it needs of this room, and no more."""

from collections.abc import Mapping
from typing import Protocol

from moorage.bus.agents import HostAddress
from moorage.bus.carrier import Bus
from moorage.bus.messages import EventHint, encode
from moorage.bus.subjects import EVENTS
from moorage.model.asker import Asker
from moorage.model.boot import BootRequest, NicWish
from moorage.model.errors import Conflict
from moorage.model.ids import ServerId
from moorage.model.server import Server
from moorage.operations import (
    attach_interface,
    boot_request,
    delete_request,
    detach_interface,
    fixed_ips,
    power,
    snapshot,
    snapshot_volumes,
    soft_delete,
)
from moorage.operations.boot_request import BootRights
from moorage.operations.drain_doors import DrainDoors, DrainDoorsProtocol
from moorage.operations.dry_run_doors import DryRunDoors, DryRunDoorsProtocol
from moorage.operations.life_doors import LifeDoors, LifeDoorsProtocol
from moorage.operations.move_doors import MoveDoors, MoveDoorsProtocol
from moorage.operations.power import PowerVerb
from moorage.operations.previewed import previewing
from moorage.operations.rooms import Rooms
from moorage.operations.shelve_doors import ShelveDoors, ShelveDoorsProtocol
from moorage.operations.snapshot import Wish
from moorage.operations.steps.servers import StateCheck
from moorage.operations.volume_doors import VolumeDoors, VolumeDoorsProtocol
from moorage.sql import Database


class ServerDoors(
    DrainDoorsProtocol,
    DryRunDoorsProtocol,
    LifeDoorsProtocol,
    MoveDoorsProtocol,
    ShelveDoorsProtocol,
    VolumeDoorsProtocol,
    Protocol,
):
    """What may be begun on servers; each is accepted durably when the call returns, or a Problem is raised."""

    async def boot(
        self, asker: Asker, token: str, request: BootRequest, rights: BootRights, request_id: str
    ) -> tuple[Server, ...]: ...

    async def delete(self, asker: Asker, server: Server, *, force: bool, request_id: str) -> None: ...

    async def power(self, asker: Asker, server: Server, verb: PowerVerb, request_id: str) -> None: ...

    async def attach_interface(
        self,
        asker: Asker,
        token: str,
        server: Server,
        wish: NicWish,
        *,
        check: StateCheck,
        external_allowed: bool,
        request_id: str,
    ) -> str:
        """Done when it returns the id of the port; `check` refuses a state that forbids it."""
        ...

    async def detach_interface(
        self, asker: Asker, server: Server, port: str, *, check: StateCheck, request_id: str
    ) -> None: ...

    async def add_fixed_ip(self, server: Server, network: str) -> None: ...

    async def remove_fixed_ip(self, server: Server, address: str) -> None: ...

    async def snapshot(
        self, asker: Asker, token: str, server: Server, wish: Wish, *, check: StateCheck, request_id: str
    ) -> str:
        """The id of the image, which is there when it returns; its data comes."""
        ...

    async def console(self, server: Server, lines: int | None) -> str:
        """What the guest wrote to its console."""
        ...

    async def event_arrived(self, server: ServerId, name: str, tag: str | None) -> None:
        """A hint that the inbox has something new; losing it costs a moment."""
        ...


class Doors(DrainDoors, DryRunDoors, LifeDoors, MoveDoors, ShelveDoors, VolumeDoors):
    """The doors of a region."""

    def __init__(self, rooms: Rooms, bus: Bus | None = None) -> None:
        self.rooms = rooms
        self._bus = bus
        self._caching = set()

    def preview(self) -> "Doors":
        return Doors(previewing(self.rooms))

    async def boot(
        self, asker: Asker, token: str, request: BootRequest, rights: BootRights, request_id: str
    ) -> tuple[Server, ...]:
        return await boot_request.begin(self.rooms, asker, token, request, rights, request_id)

    async def delete(self, asker: Asker, server: Server, *, force: bool, request_id: str) -> None:
        if not force and soft_delete.is_for_later(self.rooms, server):
            await soft_delete.begin(self.rooms, asker, server, request_id=request_id)
        else:
            await delete_request.begin(self.rooms, asker, server, force=force, request_id=request_id)

    async def power(self, asker: Asker, server: Server, verb: PowerVerb, request_id: str) -> None:
        await power.begin(self.rooms, asker, server, verb, request_id)

    async def attach_interface(
        self,
        asker: Asker,
        token: str,
        server: Server,
        wish: NicWish,
        *,
        check: StateCheck,
        external_allowed: bool,
        request_id: str,
    ) -> str:
        return await attach_interface.begin(
            self.rooms,
            asker,
            token,
            server,
            wish,
            check=check,
            external_allowed=external_allowed,
            request_id=request_id,
        )

    async def detach_interface(
        self, asker: Asker, server: Server, port: str, *, check: StateCheck, request_id: str
    ) -> None:
        await detach_interface.begin(self.rooms, asker, server, port, check=check, request_id=request_id)

    async def add_fixed_ip(self, server: Server, network: str) -> None:
        await fixed_ips.add(self.rooms, server, network)

    async def remove_fixed_ip(self, server: Server, address: str) -> None:
        await fixed_ips.remove(self.rooms, server, address)

    async def snapshot(
        self, asker: Asker, token: str, server: Server, wish: Wish, *, check: StateCheck, request_id: str
    ) -> str:
        if server.volume_backed and wish.backup_type is None:
            return await snapshot_volumes.begin(
                self.rooms, asker, token, server, wish, check=check, request_id=request_id
            )
        return await snapshot.begin(self.rooms, asker, token, server, wish, check=check, request_id=request_id)

    async def console(self, server: Server, lines: int | None) -> str:
        if server.cell is None or server.host is None:
            raise Conflict(f"Instance {server.id} is not ready")
        return await self.rooms.hosts.console_output(HostAddress(server.cell, server.host), server.id, lines)

    async def event_arrived(self, server: ServerId, name: str, tag: str | None) -> None:
        if self._bus is not None:
            await self._bus.publish(EVENTS, encode(EventHint(server, name, tag)))


class CellDatabases:
    """The cells, as the front desk reads them."""

    def __init__(self, databases: Mapping[str, Database]) -> None:
        self._databases = dict(databases)

    def all(self) -> Mapping[str, Database]:
        return self._databases
