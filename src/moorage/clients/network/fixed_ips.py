"""What is said of the fixed addresses of a port that keeps some of those it has.

A network service takes the list for all that the port is to have.  Of a subnet whose addresses follow from the MAC an address goes only
when that subnet is named as one to be left.
"""

from collections.abc import Collection, Sequence

from moorage.clients.http import Json
from moorage.model.network import FixedIp


def wire_ip(fixed: FixedIp) -> Json:
    return {"subnet_id": fixed.subnet, "ip_address": fixed.address}


def with_subnet(has: Sequence[FixedIp], subnets: Sequence[str], v6: str | None, keeps: Sequence[FixedIp]) -> list[Json]:
    """An address of the first of these subnets, unless it has one of any of them, beside those that it keeps; none of any other."""
    there = [each for each in has if each.subnet in subnets or each.subnet == v6]
    if not any(each.subnet in subnets for each in there):
        there = []
    new = [wire_ip(each) for each in there] or [{"subnet_id": each} for each in (subnets[0], v6) if each]
    staying = {*subnets, v6, *(each.subnet for each in keeps)}
    left = sorted({each.subnet for each in has} - staying)
    return [*new, *map(wire_ip, keeps), *({"subnet_id": each, "delete_subnet": True} for each in left)]


def exactly(has: Sequence[FixedIp], wanted: Sequence[FixedIp]) -> list[Json]:
    """These, and none of the others that it has."""
    staying = {each.subnet for each in wanted}
    left = sorted({each.subnet for each in has} - staying)
    return [*map(wire_ip, wanted), *({"subnet_id": each, "delete_subnet": True} for each in left)]


def without(has: Sequence[FixedIp], addresses: Collection[str]) -> list[Json] | None:
    """What stays without these; None: it has none of them."""
    staying = [each for each in has if each.address not in addresses]
    return None if len(staying) == len(has) else exactly(has, staying)
