"""Checks a boot's NICs in a cloud with flat networks, and describes its networks."""

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from moorage.clients.network.nic_validation import RequestedNics
from moorage.model.errors import Conflict, Invalid
from moorage.model.flat_network import AddressLease, AddressRequest, Exhausted, FlatPool, flat_id
from moorage.model.network import CheckedNics, NetworkFacts, NicAsk, SubnetFacts

NO_PORTS = "This cloud has flat networks: addresses come from pools of the cells, and there are no ports."
DEFAULT_GROUP = "default"


class AddressBook(Protocol):
    """Records which NIC holds which address; `main/flat_networks.py` keeps it in the region's database."""

    async def take(
        self, server: str, host: str, wants: Sequence[AddressRequest]
    ) -> tuple[AddressLease, ...] | Exhausted: ...

    async def give_back(self, server: str, nics: Collection[int] | None = None) -> None: ...

    async def of_server(self, server: str) -> Sequence[AddressLease]: ...

    async def holder(self, pool: FlatPool, slot: int) -> str | None: ...

    async def every(self) -> Sequence[AddressLease]: ...

    async def give_back_exactly(self, leases: Sequence[AddressLease]) -> int: ...


class FlatValidation:
    """Checks NICs: networks are those of the pools, and a NIC names one of them, unless there is only one."""

    def __init__(self, pools: Sequence[FlatPool], book: AddressBook) -> None:
        self._pools, self._book = pools, book
        self.facts = {each: _facts(each, pools) for each in dict.fromkeys(pool.network_id for pool in pools)}
        """Facts by network id."""

    async def check(
        self,
        token: str,
        project: str,
        nics: RequestedNics,
        *,
        security_groups: Sequence[str] = (),
        servers: int = 1,
        hostname: str = "",
        external_allowed: bool = False,
    ) -> CheckedNics:
        """Check the NICs: networks by id, or the only one, and addresses of their pools.

        Raises Invalid for ports, security groups, unknown networks and addresses that cannot be given.
        """
        if nics == "none":
            return CheckedNics()
        requests = self._default_networks(nics) if isinstance(nics, str) else tuple(nics)
        for nic in requests:
            if nic.port is not None:
                raise Invalid(f"{NO_PORTS} Name a network.", code="no_ports")
        unknown = [nic.network for nic in requests if nic.network not in self.facts]
        if unknown:
            raise Invalid(f"Network {', '.join(unknown)} could not be found.", code="network_not_found")
        if set(security_groups) - {DEFAULT_GROUP}:
            raise Invalid(f"{NO_PORTS} So there are no security groups.", code="security_group_cannot_be_applied")
        requests = tuple(msgspec.structs.replace(nic, port_security=False) for nic in requests)
        return CheckedNics(requests, await self._networks_of(requests))

    async def _networks_of(self, requests: Sequence[NicAsk]) -> dict[str, NetworkFacts]:
        """The networks; if the user chose addresses, only the cell of their pool. Raises Invalid as Nova refuses addresses."""
        networks = {nic.network: self.facts[nic.network] for nic in requests}
        chosen: set[str] = set()
        for nic in [each for each in requests if each.address is not None]:
            address = nic.address or ""
            pool, slot = self._pool_with(nic.network, address)
            holder = "" if address in chosen else await self._book.holder(pool, slot)
            chosen.add(address)
            if holder is not None:
                sentence = f"Fixed IP address {address} is already in use."  # the message does not say by whom: it may be another project's server
                raise Invalid(sentence, private=f"on instance {holder}", code="fixed_ip_in_use")
            facts = networks[nic.network]
            if pool.cell not in facts.cells:
                raise Invalid(f"Fixed IP {address} is of another cell than the others.", code="fixed_ip_outside")
            networks[nic.network] = msgspec.structs.replace(facts, cells=(pool.cell,))
        return networks

    def _pool_with(self, network: str, address: str) -> tuple[FlatPool, int]:
        """The pool of an address, and its slot. Raises Invalid when it is in no pool of the network."""
        for pool in self._pools:
            if pool.network_id == network and (slot := pool.slot(address)) is not None:
                return pool, slot
        raise Invalid(f"Fixed IP {address} is not a valid ip address for network {network}.", code="fixed_ip_outside")

    def _default_networks(self, how: str) -> tuple[NicAsk, ...]:
        if len(self.facts) > 1:
            raise Conflict(
                "Multiple possible networks found, use a Network ID to be more specific.", code="network_ambiguous"
            )
        if not self.facts and how == "auto":
            raise Conflict("Unable to automatically allocate a network: there is none.", code="auto_allocate_refused")
        return tuple(NicAsk(index=0, network=network) for network in self.facts)


def _facts(network: str, pools: Sequence[FlatPool]) -> NetworkFacts:
    mine = [pool for pool in pools if pool.network_id == network]
    return NetworkFacts(
        id=flat_id(mine[0].network),
        name=mine[0].network,
        subnets=tuple(
            SubnetFacts(
                pool.subnet_id,
                pool.cidr,
                gateway=pool.gateway,
                dns=pool.dns,
                network=network,
                dhcp=False,
                pools=((pool.first, pool.last),),
            )
            for pool in mine
        ),
        shared=True,
        port_security=False,
        network_type="flat",
        cells=tuple(pool.cell for pool in mine),
    )
