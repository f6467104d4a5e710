"""Binding: what a host can make of a port. The embedded service has one mechanism, which answers like Open vSwitch; of hosts that
plug ports into bridges themselves, like the Linux bridge."""

from typing import Any

from moorage.model.network_providers import LINUX_BRIDGE
from moorage_embedded.network.store import Doc

SRIOV = {"direct": "hw_veb", "macvtap": "hw_veb", "direct-physical": "hostdev_physical"}
VNIC_TYPES = (
    "normal", "macvtap", "direct", "baremetal", "direct-physical", "virtio-forwarder", "smart-nic", "vdpa",
    "accelerator-direct", "accelerator-direct-physical", "remote-managed",
)  # fmt: skip
TUNNELS = ("vxlan", "geneve", "gre", "local")
FAILED: dict[str, Any] = {"vif_type": "binding_failed", "vif_details": {}}
BRIDGE = "bridge"
FILTERS = "filters_ports"
"""In the configurations of an agent: it does."""
DESCRIBED = "described"
"""In the details of a binding: the host's own agent wires the port by its description, and keeps it closed until it has one."""
UNBOUND: dict[str, Any] = {"vif_type": "unbound", "vif_details": {}}


def bound(network: Doc, agent: Doc | None, vnic_type: str, segment_wanted: str | None) -> dict[str, Any]:
    """The VIF a host offers on the network, on the segment of the port's addresses if they are on one."""
    if agent is None or not agent["alive"]:
        return dict(FAILED)
    wired = agent["configurations"]["bridge_mappings"]
    for segment in network["_segments"]:
        if segment_wanted is not None and segment["id"] != segment_wanted:
            continue
        if segment["network_type"] in TUNNELS or segment["physical_network"] in wired:
            if agent["agent_type"] == LINUX_BRIDGE:
                return _bridge(vnic_type, filters=bool(agent["configurations"].get(FILTERS)))
            return _offer(vnic_type, segment)
    return dict(FAILED)


def _offer(vnic_type: str, segment: Doc) -> dict[str, Any]:
    if vnic_type in SRIOV:
        if segment["network_type"] not in {"flat", "vlan"}:
            return dict(FAILED)
        details = {
            "port_filter": False,
            "connectivity": "l2",
            "vlan": str(segment["segmentation_id"] or 0),
            "bound_drivers": {"0": "sriovnicswitch"},
        }
        return {"vif_type": SRIOV[vnic_type], "vif_details": details}
    if vnic_type != "normal":  # the others need a device that no agent here has
        return dict(FAILED)
    details = {
        "port_filter": True,
        "connectivity": "l2",
        "ovs_hybrid_plug": False,
        "datapath_type": "system",
        "bridge_name": "br-int",
        "bound_drivers": {"0": "openvswitch"},
    }
    return {"vif_type": "ovs", "vif_details": details}


def _bridge(vnic_type: str, *, filters: bool) -> dict[str, Any]:
    """A host that filters nothing says so."""
    if vnic_type != "normal":
        return dict(FAILED)
    details: dict[str, Any] = {"port_filter": filters, "connectivity": "l2", "bound_drivers": {"0": "linuxbridge"}}
    return {"vif_type": BRIDGE, "vif_details": details | ({DESCRIBED: True} if filters else {})}


def is_bound(port: Doc) -> bool:
    return port["binding:vif_type"] not in {"unbound", "binding_failed"}
