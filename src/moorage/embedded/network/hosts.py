"""Agents: which host is wired to which physical network. Segments are mapped to hosts by these words alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from moorage.embedded.network import checks
from moorage.embedded.network.attributes import Attr, for_update, read_only
from moorage.embedded.network.call import Call, stamp
from moorage.embedded.network.faults import forbidden
from moorage.embedded.network.store import Doc, Store
from moorage.model.network_providers import OVS, TUNNELLED

BINARY = "neutron-openvswitch-agent"
ATTRS: dict[str, Attr] = {
    name: read_only()
    for name in ("id", "agent_type", "binary", "topic", "host", "created_at", "started_at", "heartbeat_timestamp",
                 "configurations", "availability_zone", "alive", "resources_synced")
} | {
    "admin_state_up": Attr(checks.is_bool, True, checks.to_bool, post=False),
    "description": Attr(checks.optional(checks.text()), "", post=False),
}  # fmt: skip


@dataclass(frozen=True)
class HostNetworks:
    """A compute host and the physical networks it is wired to."""

    host: str
    physnets: tuple[str, ...] = ()
    bandwidth_kbps: int = 0
    """What each bridge can guarantee, each way; 0: nothing."""
    packet_rate_kpps: int = 0
    """What the agent can guarantee, both ways together; 0: nothing."""


def _agent(host: HostNetworks) -> Doc:
    now = stamp().replace("T", " ").rstrip("Z")
    return {
        "id": str(uuid5(NAMESPACE_DNS, f"{BINARY}.{host.host}")),
        "agent_type": OVS, "binary": BINARY, "topic": "N/A", "host": host.host,
        "admin_state_up": True, "alive": True, "created_at": now, "started_at": now, "heartbeat_timestamp": now,
        "description": None, "availability_zone": None, "resources_synced": None,
        "configurations": {
            "bridge_mappings": {name: f"br-{name}" for name in host.physnets},
            "tunnel_types": ["vxlan", "geneve"], "integration_bridge": "br-int", "datapath_type": "system",
        } | _guaranteed(host),
    }  # fmt: skip


def _guaranteed(host: HostNetworks) -> Doc:
    """What a real agent says of its `resource_provider_bandwidths` and packet processing options."""
    said: Doc = {}
    whole = {"allocation_ratio": 1.0, "min_unit": 1, "reserved": 0, "step_size": 1}
    if host.bandwidth_kbps:
        devices = [*(f"br-{name}" for name in host.physnets), TUNNELLED]
        rates = {"egress": host.bandwidth_kbps, "ingress": host.bandwidth_kbps}
        said |= {
            "resource_provider_bandwidths": dict.fromkeys(devices, rates),
            "resource_provider_hypervisors": dict.fromkeys(devices, host.host),
            "resource_provider_inventory_defaults": whole,
        }
    if host.packet_rate_kpps:
        said |= {
            "resource_provider_packet_processing_without_direction": {host.host: {"any": host.packet_rate_kpps}},
            "resource_provider_packet_processing_with_direction": {},
            "resource_provider_packet_processing_inventory_defaults": whole,
        }
    return said


def declare(store: Store, hosts: Iterable[HostNetworks]) -> set[str]:
    """Say which hosts there are; again is no harm. Answers the segments whose hosts changed."""
    changed: set[str] = set()
    wanted = {each.host: _agent(each) for each in hosts}
    known = {each["host"]: each for each in store.many("agent", where={"key": list(wanted)})}
    for name, agent in wanted.items():
        old = known.get(name)
        if old is None:
            store.add("agent", agent, key=name)
            changed |= set(agent["configurations"]["bridge_mappings"])
        elif old["configurations"] != agent["configurations"] or not old["alive"]:
            before = set(old["configurations"]["bridge_mappings"])
            store.put("agent", old | {"configurations": agent["configurations"], "alive": True}, key=name)
            changed |= before ^ set(agent["configurations"]["bridge_mappings"])
    if not changed:
        return set()
    return {each["id"] for each in store.many("segment") if each["physical_network"] in changed}


def set_alive(store: Store, host: str, alive: bool) -> bool:
    found = store.many("agent", where={"key": [host]})
    if not found:
        return False
    agent = store.get("agent", found[0]["id"], lock=True)
    assert agent is not None  # agents are never deleted but by an operator, and the lock would show it
    store.put("agent", agent | {"alive": alive}, key=host)
    return True


def update(call: Call, agent: Doc, body: Any) -> Doc:
    return agent | for_update("agent", body, ATTRS, call.who)


def put(call: Call, agent: Doc) -> None:
    call.store.put("agent", agent, key=agent["host"])


def delete(call: Call, agent: Doc) -> None:
    if not call.who.admin:
        raise forbidden("delete_agent")
    call.store.remove("agent", agent["id"])


def hosts_on(store: Store, physical: str | None) -> list[str]:
    """Hosts wired to a physical network."""
    if physical is None:
        return []
    agents = store.many("agent")
    return sorted(each["host"] for each in agents if physical in each["configurations"]["bridge_mappings"])
