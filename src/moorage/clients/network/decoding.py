"""Turns the network service's JSON into values of `model.network`."""

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.model.network import (
    AgentDevices,
    Binding,
    DhcpOption,
    FixedIp,
    HostWiring,
    NetworkFacts,
    NicAsk,
    Port,
    SegmentFacts,
    SubnetFacts,
)

MTU_DEFAULT = 1500
BINDING_FAILED_KIND = "PortBindingError"
"""The network service's type of error for a host that cannot bind a port."""
BINDING_KEYS = frozenset(
    {
        "pci_slot", "pci_vendor_info", "physical_network", "card_serial_number", "pf_mac_address", "vf_num",
        "device_mac_address", "allocation", "arq_uuid", "migrating_to",
    }
)  # fmt: skip
"""Keys of a binding profile that describe the host; they are removed when the port leaves it."""


def port_of(body: Mapping[str, Any], nic: NicAsk | None = None, ours: bool = False) -> Port:
    """Build one port; `nic` says which NIC of the server it is, and what must be restored in the end."""
    fixed_ips = fixed_ips_of(body.get("fixed_ips", ()))
    return Port(
        id=body["id"],
        network=body["network_id"],
        mac=body["mac_address"],
        ours=nic.ours if nic else ours,
        fixed_ips=fixed_ips,
        revision=body.get("revision_number", 0),
        ip_allocation=body.get("ip_allocation") or "immediate",
        device_id=body.get("device_id") or "",
        device_owner=body.get("device_owner") or "",
        project=body.get("project_id") or body.get("tenant_id") or "",
        host=body.get("binding:host_id") or "",
        vif_type=body.get("binding:vif_type") or "",
        vif_details=body.get("binding:vif_details") or {},
        profile=body.get("binding:profile") or {},
        vnic_type=body.get("binding:vnic_type") or "normal",
        status=body.get("status") or "",
        security_groups=tuple(body.get("security_groups") or ()),
        resource_request=body.get("resource_request") or None,
        request_shown="resource_request" in body,
        tag=nic.tag if nic else None,
        index=nic.index if nic else 0,
        name=body.get("name") or "",
        dns_name=body.get("dns_name") or "",
        original_profile=nic.original_profile if nic else {},
        original_fixed_ips=nic.original_fixed_ips if nic else (),
        address_chosen=bool(nic and (nic.address or nic.original_fixed_ips)),
        dhcp_options=tuple(
            DhcpOption(each["opt_name"], each["opt_value"], int(each.get("ip_version") or 4))
            for each in body.get("extra_dhcp_opts") or ()
            if each.get("opt_value") is not None
        ),
    )


def binding_of(port: str, body: Mapping[str, Any]) -> Binding:
    """Build one of a port's bindings."""
    return Binding(
        port=port,
        host=body.get("host") or "",
        active=body.get("status") == "ACTIVE",
        vnic_type=body.get("vnic_type") or "normal",
        vif_type=body.get("vif_type") or "",
        vif_details=body.get("vif_details") or {},
        profile=body.get("profile") or {},
    )


def fixed_ips_of(rows: Iterable[Mapping[str, Any]]) -> tuple[FixedIp, ...]:
    return tuple(FixedIp(row.get("subnet_id") or "", row.get("ip_address") or "") for row in rows)


def segment_of(body: Mapping[str, Any]) -> SegmentFacts:
    return SegmentFacts(
        id=body["id"],
        physical_network=body.get("physical_network"),
        network_type=body.get("network_type") or "",
        segmentation_id=body.get("segmentation_id"),
        network=body["network_id"],
        name=body.get("name"),
    )


AUTOMATIC_MODES = frozenset({"slaac", "dhcpv6-stateless"})


def subnet_of(body: Mapping[str, Any]) -> SubnetFacts:
    return SubnetFacts(
        id=body["id"],
        cidr=body["cidr"],
        version=body.get("ip_version", 4),
        gateway=body.get("gateway_ip"),
        dns=tuple(body.get("dns_nameservers", ())),
        segment=body.get("segment_id"),
        network=body["network_id"],
        dhcp=body.get("enable_dhcp", True),
        pools=tuple((pool["start"], pool["end"]) for pool in body.get("allocation_pools", ())),
        routes=tuple((route["destination"], route["nexthop"]) for route in body.get("host_routes", ())),
        automatic=not {body.get("ipv6_address_mode"), body.get("ipv6_ra_mode")}.isdisjoint(AUTOMATIC_MODES),
        ipv6_address_mode=body.get("ipv6_address_mode"),
        ipv6_ra_mode=body.get("ipv6_ra_mode"),
    )


def network_of(
    body: Mapping[str, Any], segments: Iterable[SegmentFacts] = (), subnets: Iterable[SubnetFacts] = ()
) -> NetworkFacts:
    return NetworkFacts(
        id=body["id"],
        name=body.get("name") or "",
        mtu=body.get("mtu") or MTU_DEFAULT,
        subnets=tuple(subnets),
        segments=tuple(segments),
        shared=bool(body.get("shared")),
        external=bool(body.get("router:external")),
        qos_policy=body.get("qos_policy_id"),
        project=body.get("project_id") or body.get("tenant_id") or "",
        up=body.get("admin_state_up", True),
        port_security=body.get("port_security_enabled", True),
        network_type=body.get("provider:network_type") or "",
        physical_network=body.get("provider:physical_network"),
        segmentation_id=body.get("provider:segmentation_id"),
        dns_domain=body.get("dns_domain") or "",
        l2_adjacent=body.get("l2_adjacency", True) is not False,
    )


def mappings_of(configurations: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return physical network → bridges or interfaces, from the configuration that each kind of agent reports.

    Open vSwitch: `bridge_mappings`, network → bridge.  SR-IOV: `device_mappings`, network → interfaces.  Macvtap:
    `interface_mappings`.  OVN has no agents of Neutron's: it shows each chassis as one, with `bridge-mappings`, a string of
    `network:bridge` pairs.
    """
    bridges: dict[str, tuple[str, ...]] = {}
    for name in ("bridge_mappings", "device_mappings", "interface_mappings", "bridge-mappings"):
        mappings = configurations.get(name) or {}
        if isinstance(mappings, str):
            pairs = (each.partition(":") for each in mappings.split(","))
            mappings = {network.strip(): bridge.strip() for network, _, bridge in pairs if network.strip()}
        for network, where in mappings.items():
            bridges[network] = bridges.get(network, ()) + ((where,) if isinstance(where, str) else tuple(where))
    return bridges


def wiring_of(body: Mapping[str, Any]) -> HostWiring:
    """Build what an agent, or a chassis of OVN, reports about its host."""
    configuration: Mapping[str, Any] = body.get("configurations") or {}
    return HostWiring(
        host=body.get("host", ""),
        physical_networks=tuple(sorted(mappings_of(configuration))),
        tunnels=tuple(configuration.get("tunnel_types") or ()),
        alive=bool(body.get("alive")),
    )


def devices_of(body: Mapping[str, Any]) -> AgentDevices:
    """Build the devices with bandwidth and packet rate that an agent's `configurations` report."""
    settings: Mapping[str, Any] = body.get("configurations") or {}
    host: str = body.get("host", "")
    bandwidths: Mapping[str, Any] = settings.get("resource_provider_bandwidths") or {}
    hypervisors: Mapping[str, str] = settings.get("resource_provider_hypervisors") or dict.fromkeys(bandwidths, host)
    ways = "resource_provider_packet_processing_with"
    return AgentDevices(
        host=host,
        kind=body.get("agent_type", ""),
        bandwidths={device: dict(rates) for device, rates in bandwidths.items()},
        hypervisors=dict(hypervisors),
        packets=dict(settings.get(f"{ways}out_direction") or settings.get(f"{ways}_direction") or {}),
        mappings=mappings_of(settings),
        synced=body.get("resources_synced"),
    )
