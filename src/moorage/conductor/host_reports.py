"""Turns a host's report into rows of placement and of the cell."""

import msgspec

from moorage.bus.host_messages import HostReport
from moorage.model.guest import PhysicalFunction
from moorage.model.host import Host
from moorage.model.ids import CellId, HostId
from moorage.model.image_requirements import HostKind
from moorage.model.network_providers import SRIOV, physnet_trait, sriov_provider
from moorage.model.request_groups import SRIOV_NET_VF, WHOLE_INTERFACE, VirtualFunction
from moorage.model.resources import Inventory
from moorage.placement.inventory import DeviceReport, HostInventory


def inventory_of(report: HostReport, cell: CellId, zone: str) -> HostInventory:
    """Its inventory, for placement. `zone`: its availability zone when no aggregate gives it another."""
    return HostInventory(
        host=report.host,
        node=report.hypervisor_hostname or report.host,
        cell=cell,
        inventories={
            name: Inventory(
                total=each.total,
                reserved=each.reserved,
                ratio=each.allocation_ratio,
                min_unit=each.min_unit,
                max_unit=each.max_unit,
                step=each.step_size,
            )
            for name, each in report.inventory.items()
        },
        initial={name: each.initial for name, each in report.inventory.items() if each.initial},
        traits=report.traits,
        zone=zone,
        physnets=report.physical_networks,
        level=report.level,
        kind=HostKind(
            report.hypervisor_type,
            report.hypervisor_version,
            msgspec.json.encode(report.cpu_info, order="deterministic").decode(),
        ),
    )


def host_of(report: HostReport, provider: HostId, cell: CellId, zone: str) -> Host:
    """Its record in the cell. `provider`: its resource provider, whose id is also the host's id."""
    return Host(
        number=0,
        id=provider,
        service="",
        host=report.host,
        node=report.hypervisor_hostname or report.host,
        cell=cell,
        zone=zone,
        level=report.level,
        version=report.version,
        hypervisor_type=report.hypervisor_type,
        hypervisor_version=report.hypervisor_version,
        cpu_info=report.cpu_info,
        address=report.address,
        inventory=report.inventory,
        traits=report.traits,
        physical_networks=report.physical_networks,
        agent=report.boot,
        set_aside=report.set_aside,
        up_since=report.up_since,
    )


def device_of(report: HostReport, physical: PhysicalFunction) -> DeviceReport:
    """An SR-IOV interface as a provider: its number of virtual functions, and their addresses; without any, the whole
    interface is one.
    """
    node = report.hypervisor_hostname or report.host
    functions = tuple(
        VirtualFunction(
            address=address,
            number=number,
            vendor_id=physical.vendor_id,
            product_id=physical.product_id,
            physical_network=physical.physical_network,
            pf_mac=physical.mac,
            card_serial_number=physical.card_serial_number,
        )
        for number, address in enumerate(physical.functions or (physical.address,))
    )
    return DeviceReport(
        hypervisor=node,
        id=sriov_provider(node, physical.address),
        name=f"{node}:{SRIOV}:{physical.interface}",
        inventories={SRIOV_NET_VF: Inventory(len(functions))},
        traits=(physnet_trait(physical.physical_network), *(() if physical.functions else (WHOLE_INTERFACE,))),
        functions=functions,
    )
