"""Checks before an interface is attached, and the errors of an attach that failed."""

from collections.abc import Mapping

import msgspec

from moorage.model.boot_request import NicWish
from moorage.model.errors import Conflict, HostFailed, HostUnanswered, Invalid, NoCapacity, NotFound, Problem
from moorage.model.network import NICS_MAX, BindRefused, CheckedNics, NicAsk, mint_mac
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.steps.hosts import HOST_SILENT

NOT_SUPPORTED = "not_supported"
"""The code of a host whose driver does not support the command."""


class AttachWish(msgspec.Struct, frozen=True):
    """What the request asks for."""

    nic: NicWish
    external_allowed: bool = False
    """Whether policy allows the caller to use external networks."""


async def checked_nic(
    context: SagaContext, token: str, server: Server, wish: NicWish, external_allowed: bool
) -> CheckedNics:
    """Check the requested NIC at the network service, with the user's token; refusals have the messages of an attach.

    Raises Invalid, and what the network service refuses otherwise.
    """
    nic = NicAsk(0, wish.network or "", wish.port, wish.address, wish.tag, ours=wish.port is None)
    try:
        checked = await context.network.check(
            token,
            server.project,
            (nic,) if wish.network or wish.port else "unspecified",
            hostname=server.hostname,
            external_allowed=external_allowed,
        )
    except (Invalid, Conflict) as refused:
        kind = AS_ATTACH.get(refused.code)
        if kind is None:
            raise
        raise kind(refused.public, private=refused.private, code=refused.code) from refused
    if not checked.nics:
        raise Invalid(
            f"No specific network was requested and none are available for project '{server.project}'.",
            code="no_network",
        )
    return checked


AS_ATTACH: Mapping[str, type[Problem]] = {
    "network_not_found": NotFound,
    "port_not_found": NotFound,
    "network_ambiguous": Invalid,
    "fixed_ip_in_use": Conflict,
}
"""Refusals of a boot that have another kind when they refuse an attach."""


def minted_nic(nic: NicAsk, server: Server) -> NicAsk:
    """The NIC with an index that no NIC of this server had, if one is free, and the MAC for that index.

    Raises Invalid when the server has as many interfaces as are allowed.
    """
    used = {each.index for each in server.nics}
    index = max([server.next_nic, *(each + 1 for each in used)])
    if index >= NICS_MAX:
        free = [each for each in range(NICS_MAX) if each not in used]
        if not free:
            raise Invalid(f"Instance {server.id} has {NICS_MAX} interfaces, and may have no more.")
        index = free[0]
    nic = msgspec.structs.replace(nic, index=index)
    return msgspec.structs.replace(nic, mac=mint_mac(server.id, index)) if nic.ours else nic


def api_error(server: Server, problem: Problem) -> Problem:
    """The error in Nova's kinds and messages: a host that cannot do it is the host's failure, a shortage or a refused
    bind is the caller's.
    """
    if isinstance(problem, BindRefused | NoCapacity):
        return Invalid(problem.public, private=problem.private, code=problem.code)
    if isinstance(problem, HostFailed) and problem.code == NOT_SUPPORTED:
        return Invalid(f"Attaching interfaces is not supported for instance {server.id}.", code=problem.code)
    if isinstance(problem, HostFailed) and problem.code != HOST_SILENT:
        return HostFailed(
            f"Failed to attach network adapter device to {server.id}", private=str(problem), code=problem.code
        )
    if isinstance(problem, HostUnanswered):  # not "try again": the host may have done it, and owes its removal
        public = f"Failed to attach network adapter device to {server.id}: {problem.public}"
        return HostFailed(public, private=problem.private, code=problem.code)
    if isinstance(problem, Conflict) and problem.code == "IpAddressGenerationFailure":
        return Invalid(f"No fixed IP addresses available for network: {problem.public}", code=problem.code)
    return problem
