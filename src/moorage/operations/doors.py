"""The doors through which the front desk begins operations; what it needs of this room, and no more."""

from collections.abc import Mapping
from typing import Protocol

from moorage.model.asker import Asker
from moorage.model.boot import BootRequest
from moorage.model.server import Server
from moorage.operations import boot_request, delete, power
from moorage.operations.boot_request import BootRights
from moorage.operations.power import PowerVerb
from moorage.operations.rooms import Rooms
from moorage.sql import Database


class ServerDoors(Protocol):
    """What may be begun on servers; each is accepted durably when the call returns, or a Problem is raised."""

    async def boot(
        self, asker: Asker, token: str, request: BootRequest, rights: BootRights, request_id: str
    ) -> tuple[Server, ...]: ...

    async def delete(self, asker: Asker, server: Server, *, force: bool, request_id: str) -> None: ...

    async def power(self, asker: Asker, server: Server, verb: PowerVerb, request_id: str) -> None: ...


class Doors:
    """The doors of a region."""

    def __init__(self, rooms: Rooms) -> None:
        self.rooms = rooms

    async def boot(
        self, asker: Asker, token: str, request: BootRequest, rights: BootRights, request_id: str
    ) -> tuple[Server, ...]:
        return await boot_request.begin(self.rooms, asker, token, request, rights, request_id)

    async def delete(self, asker: Asker, server: Server, *, force: bool, request_id: str) -> None:
        await delete.begin(self.rooms, asker, server, force=force, request_id=request_id)

    async def power(self, asker: Asker, server: Server, verb: PowerVerb, request_id: str) -> None:
        await power.begin(self.rooms, asker, server, verb, request_id)


class CellDatabases:
    """The cells, as the front desk reads them."""

    def __init__(self, databases: Mapping[str, Database]) -> None:
        self._databases = dict(databases)

    def all(self) -> Mapping[str, Database]:
        return self._databases
