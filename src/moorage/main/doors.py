"""What the front desk may begin: the operations, as one object with this process's rooms."""

from dataclasses import dataclass

from moorage.model.asker import Asker
from moorage.model.boot import BootRequest
from moorage.model.server import Server
from moorage.operations import boot_request, delete, power
from moorage.operations.boot_request import BootRights
from moorage.operations.power import PowerVerb
from moorage.operations.rooms import Rooms


@dataclass(frozen=True)
class Doors:
    rooms: Rooms

    async def boot(
        self, asker: Asker, token: str, request: BootRequest, rights: BootRights, request_id: str = ""
    ) -> tuple[Server, ...]:
        """See `operations.boot_request.begin`."""
        return await boot_request.begin(self.rooms, asker, token, request, rights, request_id)

    async def delete(self, asker: Asker, server: Server, *, force: bool = False, request_id: str = "") -> None:
        """See `operations.delete.begin`."""
        await delete.begin(self.rooms, asker, server, force=force, request_id=request_id)

    async def power(self, asker: Asker, server: Server, verb: PowerVerb, request_id: str = "") -> None:
        """See `operations.power.begin`."""
        await power.begin(self.rooms, asker, server, verb, request_id)
