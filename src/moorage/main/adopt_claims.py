"""Makes claims again after the region's database was restored, from what the cells have on their hosts (RULES §5).

A claim follows from the server's record: the flavor on the host, and for each NIC its addresses on a segment and its port's guarantees.
What is in use is counted even if it is more than the inventory.  Hosts are recorded first, as their cells have them, and also
whether an administrator has disabled them.  What a record does not contain is left as it is, and reported: which virtual function
a port has, and which providers gave the suffixed groups of a flavor.
"""

from collections.abc import Mapping, Sequence

import msgspec

from moorage.model.ids import CellId, ProviderId
from moorage.model.network_providers import GUARANTEED
from moorage.model.request_groups import SRIOV_NET_VF
from moorage.model.resources import IPV4_ADDRESS, Inventory
from moorage.model.server import Server
from moorage.model.world import GroupAsk
from moorage.operations.boot.boot_servers import needs_of_flavor
from moorage.operations.interfaces.port_sync import asks_itself
from moorage.operations.steps.ports import held_by_all
from moorage.placement import claims
from moorage.placement.inventory import HostInventory, report_host
from moorage.sql import Database, Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.identity import ComparedRecord
from moorage.store.doubts import seq_of
from moorage.store.region import numbers, server_groups
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.claim_statements import Key, Owner

FUNCTIONS = frozenset({"direct", "macvtap", "direct-physical"})


class Reclaimed(msgspec.Struct):
    """How many claims were made or corrected, and the servers of which a part could not be claimed."""

    made: int = 0
    in_part: list[str] = []


async def know_hosts(region: Database, cell: CellId, database: Database) -> None:
    """Record in the region the hosts that came after its backup, and whether they are disabled, as their cell has them."""
    for host in await database.read(cell_hosts.listed):
        inventories = {
            name: Inventory(
                total=each.total,
                reserved=each.reserved,
                ratio=each.allocation_ratio,
                min_unit=each.min_unit,
                max_unit=each.max_unit,
                step=each.step_size,
            )
            for name, each in host.inventory.items()
        }
        inventory = HostInventory(
            host=host.host,
            node=host.node,
            cell=cell,
            inventories=inventories,
            traits=host.traits,
            zone=host.zone,
            physnets=host.physical_networks,
            level=host.level,
            enabled=not host.disabled,
        )
        await region.write(lambda tx, inventory=inventory: report_host(tx, inventory))  # type: ignore[misc]


async def claim_again(
    region: Database, cell: CellId, database: Database, page: Sequence[ComparedRecord], done: Reclaimed, *, behind: bool
) -> None:
    """Make the claims of a page of records, for the servers that the region has in that cell.

    `behind`: the region is older than the cells, so claims that differ from the records are wrong too.
    """
    living = [each.id for each in page if not each.deleted]
    records = await database.read(lambda tx: [cell_servers.get(tx, each) for each in living])
    on_hosts = [each for each in records if each is not None and each.host is not None and each.provider is not None]

    seqs = {each.id: seq_of(each) for each in on_hosts}

    def work(tx: Tx) -> list[tuple[str, bool]]:
        named = region_servers.cells_of(tx, [each.id for each in on_hosts])
        known = numbers.of(tx, [each.id for each in on_hosts])
        older = {id for id, each in known.items() if each.recorded_seq > seqs[id]}  # their claims know better
        mine = [each for each in on_hosts if named.get(each.id, cell) in (cell, None) and each.id not in older]
        wholes = [(str(each.id), _claim(tx, each, behind)) for each in mine]
        wholes += [(str(each.id), _claim_of_move(tx, each)) for each in mine if behind]
        return [(server, whole) for server, whole in wholes if whole is not None]

    made = await region.write(work) if on_hosts else []
    done.made += len({server for server, _ in made})
    done.in_part += sorted({server for server, whole in made if not whole})


def _claim(tx: Tx, server: Server, behind: bool) -> bool | None:
    """None: its claim was correct. False: a part of it could not be claimed."""
    owner, held = claim_statements.owner(tx, server.id), claim_statements.held(tx, server.id)
    if owner is not None and held and not behind:
        return None
    truth, kept = _truth(server), _not_judged(server, held)
    if held == truth | kept:
        return None
    if owner is None:
        owner = Owner(server.id, server.project, server.user, operation=str(server.operation or "adopted"))
    group = None if server.group is None else server_groups.get(tx, server.group)
    ask = None if group is None else GroupAsk(group.id, group.policy, group.max_per_host or 1)
    assert server.provider is not None  # the caller has checked
    left_out = claims.restore(tx, owner, server.provider, truth | kept, ask)
    return not left_out and not _is_incomplete(server, kept)


def _claim_of_move(tx: Tx, server: Server) -> bool | None:
    """Claim what a moved server keeps on the host that it left, until the move is confirmed or reverted; answers as `_claim` does.

    A revert needs this claim.  Guarantees and virtual functions of that host stay unclaimed, because the record does not name
    their providers.
    """
    moved = server.moved
    if moved is None or moved.provider is None or claim_statements.owner(tx, moved.migration) is not None:
        return None
    needs = needs_of_flavor(moved.flavor, server.image_properties, local_root=not server.volume_backed)
    truth = {(ProviderId(str(moved.provider)), name): amount for name, amount in needs.resources.items() if amount > 0}
    for each in moved.readdressed:
        if each.old_segment is not None and (count := sum(":" not in old.address for old in each.old)):
            key = (ProviderId(each.old_segment), IPV4_ADDRESS)
            truth[key] = truth.get(key, 0) + count
    owner = Owner(
        moved.migration,
        server.project,
        server.user,
        type=claim_statements.MIGRATION,
        operation=str(server.operation or "adopted"),
    )
    left_out = claims.restore(tx, owner, moved.provider, truth, None)
    unsaid = needs.groups or any(nic.vnic_type in FUNCTIONS or nic.guarantees for nic in server.nics)
    return not left_out and not unsaid


def _truth(server: Server) -> dict[Key, int]:
    needs = needs_of_flavor(server.flavor, server.image_properties, local_root=not server.volume_backed)
    own = {(ProviderId(str(server.provider)), name): amount for name, amount in needs.resources.items() if amount > 0}
    return own | held_by_all(server.nics)


def _not_judged(server: Server, held: Mapping[Key, int]) -> dict[Key, int]:
    """The part of what it holds that its record says nothing about."""
    in_groups = {
        name
        for group in needs_of_flavor(server.flavor, server.image_properties, local_root=not server.volume_backed).groups
        for name in group.resources
    }
    unsaid = {SRIOV_NET_VF} | in_groups | (GUARANTEED if asks_itself(server) else frozenset())
    return {
        key: amount
        for key, amount in held.items()
        if key[1] in unsaid - {IPV4_ADDRESS} and str(key[0]) != str(server.provider)
    }


def _is_incomplete(server: Server, kept: Mapping[Key, int]) -> bool:
    needs = needs_of_flavor(server.flavor, server.image_properties, local_root=not server.volume_backed)
    return not kept and (bool(needs.groups) or any(nic.vnic_type in FUNCTIONS for nic in server.nics))
