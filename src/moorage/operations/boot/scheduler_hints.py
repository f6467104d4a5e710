"""The scheduler hints `same_host` and `different_host`: finds the hosts of the servers that they name.

A project may refer only to servers that it sees. Servers of other projects count as unknown ids; otherwise a project
could place its servers beside any other's. Administrators see all servers when they boot. A move uses the servers of
the moved server's project, whoever asks for the move.
"""

from collections.abc import Mapping, Sequence

from moorage.model.ids import HostId, ServerId
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.steps import servers as records

Hints = Mapping[str, str | list[str]]
Hinted = tuple[tuple[HostId, ...] | None, tuple[HostId, ...]]
"""(the only allowed hosts, or None for any; the forbidden hosts)."""


async def hinted_hosts(context: SagaContext, hints: Hints, project: str | None) -> Hinted:
    """The hinted hosts for a new server of this project; None: the caller sees every project.

    When none of the servers named for `same_host` is visible, no host fits, as in Nova.
    """
    same, different = _named(hints, "same_host"), _named(hints, "different_host")
    near = None if same is None else _hosts(await _servers(context, same), project)
    far = () if different is None else _hosts(await _servers(context, different), project)
    return near, far


async def hinted_again(context: SagaContext, server: Server) -> Hinted:
    """The hinted hosts for a server that moves. A server of another project, beside which an administrator put it, does
    not hold it.
    """
    same, different = _named(server.hints, "same_host"), _named(server.hints, "different_host")
    near: tuple[HostId, ...] | None = None
    if same is not None:
        servers = await _servers(context, same)
        if not servers or any(each.project == server.project for each in servers):
            near = _hosts(servers, server.project)
    far = () if different is None else _hosts(await _servers(context, different), server.project)
    return near, far


def _named(hints: Hints, name: str) -> Sequence[str] | None:
    named = hints.get(name)
    return [named] if isinstance(named, str) else named


async def _servers(context: SagaContext, ids: Sequence[str]) -> list[Server]:
    servers: list[Server] = []
    for each in dict.fromkeys(ids):
        server = (await records.find(context, ServerId(each))).server
        if server is not None:
            servers.append(server)
    return servers


def _hosts(servers: Sequence[Server], project: str | None) -> tuple[HostId, ...]:
    visible = (each for each in servers if project in (None, each.project) and not each.deleted)
    return tuple(dict.fromkeys(each.provider for each in visible if each.provider is not None))
