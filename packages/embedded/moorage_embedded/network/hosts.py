"""Agents: which host is wired to which physical network. Segments are mapped to hosts by these words alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from moorage.model.network_providers import LINUX_BRIDGE, NIC_SWITCH, OVS, TUNNELLED
from moorage_embedded.network import validators
from moorage_embedded.network.attributes import Attr, for_update, read_only
from moorage_embedded.network.binding import FILTERS
from moorage_embedded.network.request import NetworkCall, stamp
from moorage_embedded.network.store import Doc, NetworkStore

BINARY = "neutron-openvswitch-agent"
BRIDGE_BINARY = "neutron-linuxbridge-agent"
NIC_BINARY = "neutron-sriov-nic-agent"
ATTRS: dict[str, Attr] = {
    name: read_only()
    for name in ("id", "agent_type", "binary", "topic", "host", "created_at", "started_at", "heartbeat_timestamp",
                 "configurations", "availability_zone", "alive", "resources_synced")
} | {
    "admin_state_up": Attr(validators.is_bool, True, validators.to_bool, post=False),
    "description": Attr(validators.optional(validators.text()), "", post=False),
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
    interfaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Physical network → SR-IOV interfaces; a second agent sees to them, with the same bandwidth each."""
    plugs_into_bridges: bool = False
    """Its own agent does, and wires them: real guests."""
    filters_ports: bool = False
    """By their descriptions, and keeps what is guaranteed: of a host that plugs into bridges."""


SAID_ANEW = ("agent_type", "binary", "configurations", "alive")
"""A host that changes its driver changes its agent too."""
WHOLE = {"allocation_ratio": 1.0, "min_unit": 1, "reserved": 0, "step_size": 1}
"""The defaults of inventories, as agents say them."""


def _agents(host: HostNetworks) -> dict[str, Doc]:
    """By the key they are kept under: the one that binds ordinary ports under its host's name."""
    bridges = {name: f"br-{name}" for name in host.physnets}
    if host.plugs_into_bridges:
        told: Doc = {"bridge_mappings": bridges, "tunnel_types": ["vxlan"]}
        if host.filters_ports:
            told |= {FILTERS: True} | _bandwidth(host, [*bridges.values(), TUNNELLED])
        return {host.host: _agent(host, LINUX_BRIDGE, BRIDGE_BINARY, told)}
    said: Doc = {"bridge_mappings": bridges, "integration_bridge": "br-int", "datapath_type": "system"}
    said |= {"tunnel_types": ["vxlan", "geneve"]} | _bandwidth(host, [*bridges.values(), TUNNELLED])
    if host.packet_rate_kpps:
        said |= {
            "resource_provider_packet_processing_without_direction": {host.host: {"any": host.packet_rate_kpps}},
            "resource_provider_packet_processing_with_direction": {},
            "resource_provider_packet_processing_inventory_defaults": WHOLE,
        }
    found = {host.host: _agent(host, OVS, BINARY, said)}
    if host.interfaces:
        devices = [name for names in host.interfaces.values() for name in names]
        said = {"device_mappings": {name: list(each) for name, each in host.interfaces.items()}, "exclude_devices": {}}
        found[f"{host.host} {NIC_SWITCH}"] = _agent(host, NIC_SWITCH, NIC_BINARY, said | _bandwidth(host, devices))
    return found


def _agent(host: HostNetworks, kind: str, binary: str, configurations: Doc) -> Doc:
    now = stamp().replace("T", " ").rstrip("Z")
    return {
        "id": str(uuid5(NAMESPACE_DNS, f"{binary}.{host.host}")),
        "agent_type": kind, "binary": binary, "topic": "N/A", "host": host.host,
        "admin_state_up": True, "alive": True, "created_at": now, "started_at": now, "heartbeat_timestamp": now,
        "description": None, "availability_zone": None, "resources_synced": None, "configurations": configurations,
    }  # fmt: skip


def _bandwidth(host: HostNetworks, devices: list[str]) -> Doc:
    """What a real agent says of its `resource_provider_bandwidths`."""
    if not host.bandwidth_kbps:
        return {}
    rates = {"egress": host.bandwidth_kbps, "ingress": host.bandwidth_kbps}
    return {
        "resource_provider_bandwidths": dict.fromkeys(devices, rates),
        "resource_provider_hypervisors": dict.fromkeys(devices, host.host),
        "resource_provider_inventory_defaults": WHOLE,
    }


def _bridges(agent: Doc) -> Doc:
    found: Doc = agent["configurations"].get("bridge_mappings", {})
    return found


def declare(store: NetworkStore, hosts: Iterable[HostNetworks]) -> set[str]:
    """Say which hosts there are; again is no harm. Answers the segments whose hosts changed."""
    changed: set[str] = set()
    wanted = {key: agent for each in hosts for key, agent in _agents(each).items()}
    known = {_key(each): each for each in store.many("agent", where={"key": list(wanted)})}
    for name, agent in wanted.items():
        old = known.get(name)
        if old is None:
            store.add("agent", agent, key=name)
            changed |= set(_bridges(agent))
        elif any(old[each] != agent[each] for each in ("configurations", "agent_type", "alive")):
            before = set(_bridges(old))
            store.put("agent", old | {each: agent[each] for each in SAID_ANEW}, key=name)
            changed |= before ^ set(_bridges(agent))
    if not changed:
        return set()
    return {each["id"] for each in store.many("segment") if each["physical_network"] in changed}


def _key(agent: Doc) -> str:
    host: str = agent["host"]
    return host if agent["agent_type"] in {OVS, LINUX_BRIDGE} else f"{host} {agent['agent_type']}"


def set_alive(store: NetworkStore, host: str, alive: bool) -> bool:
    found = store.many("agent", where={"key": [host]})
    if not found:
        return False
    agent = store.get("agent", found[0]["id"], lock=True)
    assert agent is not None  # agents are never deleted but by an operator, and the lock would show it
    store.put("agent", agent | {"alive": alive}, key=host)
    return True


def update(call: NetworkCall, agent: Doc, body: Any) -> Doc:
    return agent | for_update("agent", body, ATTRS, call.who)


def put(call: NetworkCall, agent: Doc) -> None:
    call.store.put("agent", agent, key=_key(agent))


def delete(call: NetworkCall, agent: Doc) -> None:
    call.require(call.who.admin, "delete_agent")
    call.store.remove("agent", agent["id"])


def hosts_on(store: NetworkStore, physical: str | None) -> list[str]:
    """Hosts wired to a physical network."""
    if physical is None:
        return []
    agents = store.many("agent")
    return sorted(each["host"] for each in agents if physical in _bridges(each))
