"""Repairs ports and their bindings."""

from functools import partial
from typing import Any

import msgspec

from moorage.conductor.audit.reader import AuditReader
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.model.audit import Finding
from moorage.model.errors import Conflict
from moorage.model.ids import HostId, ProviderId, ServerId
from moorage.model.network import BindOptions, Port
from moorage.model.request_groups import ALLOCATION, RequestGroup, allocation_of, groups_of
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.interfaces import port_sync
from moorage.operations.interfaces.port_sync import SyncOutcome
from moorage.operations.steps import servers as records
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements, recount


class PortRepairs:
    def __init__(self, context: SagaContext, reader: AuditReader) -> None:
        self._context, self._reader = context, reader

    async def stray(self, finding: Finding) -> str:
        """Handle ports of a server that does not have them."""
        server = ServerId(finding.server)
        ports = {each.id: each for each in await self._context.network.ports_of(server)}
        done = await OrphanPorts(self._context).repair(server, ports)
        return f"{done.released} deleted or released" if done.released else ""

    async def sync_port(self, finding: Finding) -> str:
        """Do what an event of the network service would cause."""
        outcome = await port_sync.reconcile(self._context, ServerId(finding.server))
        return "brought up to date" if outcome is SyncOutcome.MENDED else ""

    async def _free(self, finding: Finding) -> tuple[Server, Port] | None:
        """The server, if no operation holds it, and its port as it is now."""
        id = ServerId(finding.server)
        where = await self._context.region.read(lambda tx: region_servers.find(tx, id))
        if where is None or where.operation is not None:
            return None
        server = (await records.find(self._context, id)).server
        if server is None or server.deleted:
            return None
        nic = next((each for each in server.nics if str(each.port) == finding.what), None)
        port = next((each for each in await self._context.network.ports_of(id) if each.id == finding.what), None)
        now = await self._context.region.read(lambda tx: region_servers.find(tx, id))
        if now is None or now.operation is not None or now.op_seq != where.op_seq:
            return None  # what was read may be from before or during an operation
        if nic is None or port is None:
            return None
        return server, msgspec.structs.replace(port, index=nic.index, ours=nic.ours, tag=nic.tag)

    async def bind(self, finding: Finding) -> str:
        server_and_port = await self._free(finding)
        if server_and_port is None or server_and_port[0].host is None:
            return ""
        server, port = server_and_port
        profile = await self._allocation(server, port)
        if profile is None:
            return ""
        await self._bind(server, port, profile)
        return f"bound to {server.host}"

    async def _allocation(self, server: Server, port: Port) -> dict[str, Any] | None:
        """The providers in a binding to the server's host; a binding to another host names providers of that host.
        None: unknown.
        """
        if port.host == server.host and ALLOCATION in port.profile:
            return {ALLOCATION: port.profile[ALLOCATION]}
        groups, _ = groups_of(port.resource_request, port.id)
        return await self._named(server, port) if groups else {}

    async def _bind(self, server: Server, port: Port, profile: dict[str, Any]) -> None:
        kept = {name: value for name, value in port.profile.items() if name != ALLOCATION}
        await self._context.network.bind_ports(
            server.id,
            str(server.host),
            server.availability_zone or self._context.settings.default_availability_zone,
            [port],
            BindOptions(profiles={port.index: {**kept, **profile}}),
        )

    async def name_providers(self, finding: Finding) -> str:
        """Write the claimed providers into the binding, or the only ones that could serve it."""
        server_and_port = await self._free(finding)
        if server_and_port is None or server_and_port[0].host is None:
            return ""
        server, port = server_and_port
        named = await self._named(server, port)
        if named is None:
            return ""
        await self._bind(server, port, named)
        return f"the binding names {named[ALLOCATION]}"

    async def _named(self, server: Server, port: Port) -> dict[str, Any] | None:
        """None: the port has no resource request. Raises Conflict when none or several providers could serve one of its
        groups, and the claim does not tell which.

        A host may have several devices with bandwidth. The traits that a group requires, of the physical network and
        of the kind of port, leave the one that the scheduler would have chosen.
        """
        groups, _ = groups_of(port.resource_request, port.id)
        if not groups:
            return None
        host = HostId(str(server.provider))
        candidates = [*self._context.placement.world().device_names(host), ProviderId(host)]
        held = await self._context.region.read(lambda tx: claim_statements.held(tx, server.id))
        chosen: dict[str, ProviderId] = {}
        for group in groups:
            classes = list(group.resources)
            fitting = await self._context.region.read(
                partial(recount.with_traits, providers=candidates, required=group.required)
            )
            claimed = [each for each in fitting if all((each, name) in held for name in classes)]
            offering = partial(recount.offering, providers=fitting, resources=classes)
            able = claimed or await self._context.region.read(offering)
            if len(able) != 1:
                raise _ambiguous(port, group, len(able))
            chosen[group.id] = able[0]
        return {ALLOCATION: allocation_of(port.resource_request, port.id, chosen)}

    async def take_off(self, finding: Finding) -> str:
        server_and_port = await self._free(finding)
        if server_and_port is None or server_and_port[0].host is not None:
            return ""
        await self._context.network.take_off_host(server_and_port[0].id, [finding.what])
        return "on no host"

    async def delete_binding(self, finding: Finding) -> str:
        server_and_port = await self._free(finding)
        if server_and_port is None or server_and_port[0].host == finding.where or server_and_port[0].moved is not None:
            return ""
        await self._context.network.delete_binding(server_and_port[0].id, finding.where, [finding.what])
        return "deleted"


def _ambiguous(port: Port, group: RequestGroup, able: int) -> Conflict:
    """Why the binding cannot name a provider, for an operator."""
    wanted = ", ".join((*sorted(group.resources), *group.required))
    how_many = "no provider of its host has" if not able else f"{able} providers of its host have"
    return Conflict(
        f"{how_many} what port {port.id} is guaranteed ({wanted}), and the claim does not tell which is meant: move the server, "
        "which claims it again"
    )
