"""What ports of a small region are guaranteed, and the devices of its hosts that give it."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from moorage.model.ids import ProviderId
from moorage.model.network import Port
from moorage.model.request_groups import ALLOCATION, amounts_held
from moorage.model.resources import Inventory
from moorage.placement.inventory import DeviceReport
from moorage.sql import Tx
from moorage_testing.region_statements import ALLOCATED

BANDWIDTH, PACKETS = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_PACKET_RATE_KILOPACKET_PER_SEC"
ONE_GROUP: dict[str, Any] = {"resources": {BANDWIDTH: 100}, "required": ["CUSTOM_PHYSNET_WIRE"]}


def in_groups(port: str) -> dict[str, Any]:
    groups = [{"id": f"{port}/bandwidth", "resources": {BANDWIDTH: 200}, "required": ["CUSTOM_PHYSNET_WIRE"]}]
    groups.append({"id": f"{port}/packets", "resources": {PACKETS: 3}, "required": []})
    return {"request_groups": groups, "same_subtree": [each["id"] for each in groups]}


def devices_of(host: str) -> list[DeviceReport]:
    """An agent and its bridge, below a host."""
    agent, bridge = ProviderId(f"{host}-agent"), ProviderId(f"{host}-bridge")
    return [
        DeviceReport(hypervisor=host, id=agent, name=f"{host}:agent", inventories={PACKETS: Inventory(100)}),
        DeviceReport(
            hypervisor=host,
            id=bridge,
            name=f"{host}:agent:bridge",
            parent=agent,
            inventories={BANDWIDTH: Inventory(1_000)},
            traits=("CUSTOM_PHYSNET_WIRE",),
        ),
    ]


def guaranteed(tx: Tx, ports: Iterable[Port]) -> dict[str, Any]:
    """What is claimed of devices, and whether the ports' bindings name the providers it is claimed of."""
    claimed: Counter[tuple[str, str]] = Counter()
    for provider, resource, amount in tx.rows(ALLOCATED):
        if resource in {BANDWIDTH, PACKETS}:
            claimed[provider, resource] += amount
    named: Counter[tuple[str, str]] = Counter()
    for port in ports:
        named.update(amounts_held(port.resource_request, port.id, port.profile.get(ALLOCATION)))
    return {
        "claimed": sorted((resource, amount) for (_, resource), amount in claimed.items()),
        "as named": claimed == named,
    }
