"""The scheduler hints `same_host` and `different_host`: where the servers are that they name.

A project may say where its servers are to be only by servers that it sees: those of others are as unknown to it as ids that nobody
has, or it could place itself beside anybody. Administrators see all when they boot; a move goes by the servers of the moved one's
project, whoever asks for it.
"""

from collections.abc import Mapping, Sequence

from moorage.model.ids import HostId, ServerId
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.steps import servers as records

Hints = Mapping[str, str | list[str]]
Hinted = tuple[tuple[HostId, ...] | None, tuple[HostId, ...]]
"""Only there, if anywhere is said; not there."""


async def hinted_hosts(context: SagaContext, hints: Hints, project: str | None) -> Hinted:
    """Of a server that is to be made in this project; None: by somebody who sees every project.

    Where no server that is named for `same_host` is to be seen, no host will do, as in Nova.
    """
    same, different = _named(hints, "same_host"), _named(hints, "different_host")
    near = None if same is None else _hosts(await _servers(context, same), project)
    far = () if different is None else _hosts(await _servers(context, different), project)
    return near, far


async def hinted_again(context: SagaContext, server: Server) -> Hinted:
    """Of a server that moves. It is not held where it is by another project's server, beside which only an administrator put it."""
    same, different = _named(server.hints, "same_host"), _named(server.hints, "different_host")
    near: tuple[HostId, ...] | None = None
    if same is not None:
        found = await _servers(context, same)
        if not found or any(each.project == server.project for each in found):
            near = _hosts(found, server.project)
    far = () if different is None else _hosts(await _servers(context, different), server.project)
    return near, far


def _named(hints: Hints, name: str) -> Sequence[str] | None:
    named = hints.get(name)
    return [named] if isinstance(named, str) else named


async def _servers(context: SagaContext, ids: Sequence[str]) -> list[Server]:
    found: list[Server] = []
    for each in dict.fromkeys(ids):
        server = (await records.find(context, ServerId(each))).server
        if server is not None:
            found.append(server)
    return found


def _hosts(servers: Sequence[Server], project: str | None) -> tuple[HostId, ...]:
    seen = (each for each in servers if project in (None, each.project) and not each.deleted)
    return tuple(dict.fromkeys(each.provider for each in seen if each.provider is not None))
