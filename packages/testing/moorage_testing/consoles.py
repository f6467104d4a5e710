"""Consoles that lead nowhere: for tests of the API without hosts."""

from typing_extensions import override

from moorage.model.console import ConsoleSocket, ConsoleToken, ConsoleType
from moorage.model.errors import NotFound
from moorage.model.server import Server
from moorage.operations.guest.consoles import Consoles, access_url


class FakeConsoles(Consoles):
    """The token of each kind is its name."""

    def __init__(self) -> None:
        """There are no hosts to ask and no databases to keep tokens in."""

    @override
    async def open(self, server: Server, kind: ConsoleType) -> str:
        return access_url(f"http://proxy/{kind.value}", kind, kind.value)

    @override
    async def resolve(self, token: str) -> ConsoleToken:
        """The console of a token. Raises NotFound for an unknown one."""
        if token not in list(ConsoleType):
            raise NotFound("there is no such token")
        socket = ConsoleSocket("192.0.2.1", 5900, 5901 if token == ConsoleType.SPICE_DIRECT else None)
        return ConsoleToken("hash", "00000000-0000-4000-8000-000000000001", token, "host1", socket, 0)
