"""Builds the `fixed_ips` of a port that keeps some of its addresses.

A network service takes this list as all addresses that the port shall have.  If a subnet's addresses follow from the MAC, an address is
removed only when the request names that subnet as one to leave.
"""

from collections.abc import Collection, Sequence

from moorage.clients.http import Json
from moorage.model.network import FixedIp


def wire_ip(fixed: FixedIp) -> Json:
    return {"subnet_id": fixed.subnet, "ip_address": fixed.address}


def with_subnet(has: Sequence[FixedIp], subnets: Sequence[str], v6: str | None, keeps: Sequence[FixedIp]) -> list[Json]:
    """Ask for an address of the first of these subnets, unless the port has one of any of them, in addition to the addresses that it
    keeps; addresses of other subnets are removed.
    """
    kept = [each for each in has if each.subnet in subnets or each.subnet == v6]
    if not any(each.subnet in subnets for each in kept):
        kept = []
    new = [wire_ip(each) for each in kept] or [{"subnet_id": each} for each in (subnets[0], v6) if each]
    staying = {*subnets, v6, *(each.subnet for each in keeps)}
    left = sorted({each.subnet for each in has} - staying)
    return [*new, *map(wire_ip, keeps), *({"subnet_id": each, "delete_subnet": True} for each in left)]


def exactly(has: Sequence[FixedIp], wanted: Sequence[FixedIp]) -> list[Json]:
    """Ask for exactly these addresses; all others are removed."""
    staying = {each.subnet for each in wanted}
    left = sorted({each.subnet for each in has} - staying)
    return [*map(wire_ip, wanted), *({"subnet_id": each, "delete_subnet": True} for each in left)]


def without(has: Sequence[FixedIp], addresses: Collection[str]) -> list[Json] | None:
    """Ask for the port's addresses without these; None: it has none of them."""
    staying = [each for each in has if each.address not in addresses]
    return None if len(staying) == len(has) else exactly(has, staying)
