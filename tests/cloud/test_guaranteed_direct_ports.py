"""Direct ports with and without guarantees: virtual functions and whole interfaces (S2)."""

from tests.cloud.conftest import Start
from tests.helpers.explained_claims import explained
from tests.helpers.guaranteed_ports import (
    EGR,
    IGR,
    KBPS,
    made,
    network_on,
    policy_of,
    providers,
    show_port,
    used,
)

from moorage.main.config import Hosts
from moorage.model.ids import ServerId


async def test_a_direct_port_gets_a_virtual_function_of_the_interface_that_has_its_bandwidth(start: Start) -> None:
    """S1.15: two functions an interface; the one whose interface has the bandwidth, held by one port at a time."""
    hosts = Hosts(count=2, physical_networks=(("physnet1",), ("physnet2",)), bandwidth_kbps=KBPS, virtual_functions=2)
    async with start(hosts=hosts) as running:
        admin, found = running.admin, await providers(running.admin)
        network, policy = await network_on(admin, "physnet2"), await policy_of(admin, kbps=4_000)
        direct = {"binding:vnic_type": "direct", "network_id": network}
        ports = [await made(admin, "/ports", "port", **direct, qos_policy_id=policy) for _ in range(3)]
        servers = [await admin.active(networks=[{"port": each["id"]}]) for each in ports[:2]]
        assert {each["OS-EXT-SRV-ATTR:host"] for each in servers} == {"host2"}
        bandwidth = found["host2:NIC Switch agent:ens1"]
        assert await used(admin, bandwidth) == {EGR: 8_000, IGR: 0}
        assert await used(admin, found["host2:SR-IOV:ens1"]) == {"SRIOV_NET_VF": 2}
        bound = [await show_port(admin, each["id"]) for each in ports[:2]]
        profiles = [each["binding:profile"] for each in bound]
        assert {each["pci_slot"] for each in profiles} == {"0000:80:01.0", "0000:80:01.1"}
        assert {each["vf_num"] for each in profiles} == {0, 1}
        for port, profile in zip(bound, profiles, strict=True):
            (group,) = port["resource_request"]["request_groups"]
            assert profile["allocation"] == {group["id"]: bandwidth}
            assert profile["pci_vendor_info"] == "8086:1889"
            assert profile["physical_network"] == "physnet2"
            assert profile["pf_mac_address"].startswith("02:")
            assert port["binding:vif_type"] == "hw_veb"
        full = await admin.settled(await admin.boot(networks=[{"port": ports[2]["id"]}]))
        assert full["status"] == "ERROR"
        told = (await explained(admin, full["id"]))["operations"][0]["ended"]["refused_hosts"]
        reasons = {each["host"]: each["reason"] for each in told}
        assert "SRIOV_NET_VF: 1 asked, at most 0 free on one device" in reasons["host2"]
        await admin.gone(servers[0]["id"])
        again = await admin.active(networks=[{"port": ports[2]["id"]}])
        profile = (await show_port(admin, ports[2]["id"]))["binding:profile"]
        assert profile["pci_slot"] == profiles[0]["pci_slot"]
        for server in (servers[1]["id"], again["id"], full["id"]):
            await admin.gone(server)
        for each in ports:
            assert (await show_port(admin, each["id"]))["binding:profile"] == {}
            await admin.network("DELETE", f"/ports/{each['id']}")
        assert await used(admin, found["host2:SR-IOV:ens1"]) == {"SRIOV_NET_VF": 0}


async def test_a_direct_port_without_a_policy_is_claimed_and_refused_on_other_networks(start: Start) -> None:
    hosts = Hosts(count=1, bandwidth_kbps=KBPS, virtual_functions=1)
    async with start(hosts=hosts) as running:
        admin, found = running.admin, await providers(running.admin)
        direct = {"binding:vnic_type": "direct"}
        here = await made(admin, "/ports", "port", network_id=await network_on(admin, "physnet1"), **direct)
        there = await made(admin, "/ports", "port", network_id=await network_on(admin, "physnet3"), **direct)
        server = await admin.active(networks=[{"port": here["id"]}])
        assert await used(admin, found["host1:SR-IOV:ens1"]) == {"SRIOV_NET_VF": 1}
        refused = await admin.settled(await admin.boot(networks=[{"port": there["id"]}]))
        assert refused["status"] == "ERROR"
        for each in (server, refused):
            await admin.gone(each["id"])
        for port in (here, there):
            await admin.network("DELETE", f"/ports/{port['id']}")


async def test_a_direct_physical_port_gets_the_interface_and_its_mac(start: Start) -> None:
    """One that is not divided, with the bandwidth of that same interface; a second one is refused, and no function is taken for it."""
    hosts = Hosts(count=1, bandwidth_kbps=KBPS, virtual_functions=2, whole_interfaces=1)
    async with start(hosts=hosts) as running:
        admin, found = running.admin, await providers(running.admin)
        whole, divided = found["host1:SR-IOV:enp1s0"], found["host1:SR-IOV:ens1"]
        network, policy = await network_on(admin, "physnet1"), await policy_of(admin, kbps=4_000)
        kind = {"binding:vnic_type": "direct-physical", "network_id": network}
        first = await made(admin, "/ports", "port", **kind, qos_policy_id=policy)
        second = await made(admin, "/ports", "port", **kind)
        server = await admin.active(networks=[{"port": first["id"]}])
        assert await used(admin, whole) == {"SRIOV_NET_VF": 1}
        assert await used(admin, found["host1:NIC Switch agent:enp1s0"]) == {EGR: 4_000, IGR: 0}
        bound = await show_port(admin, first["id"])
        (group,) = bound["resource_request"]["request_groups"]
        assert bound["binding:vif_type"] == "hostdev_physical"
        assert bound["binding:profile"] == {
            "allocation": {group["id"]: found["host1:NIC Switch agent:enp1s0"]},
            "pci_slot": "0000:c0:00.0",
            "pci_vendor_info": "8086:1572",
            "physical_network": "physnet1",
            "device_mac_address": "02:01:00:00:00:00",
        }
        assert bound["mac_address"] == "02:01:00:00:00:00"
        shown = (await admin.compute("GET", f"/servers/{server['id']}/os-interface")).json()["interfaceAttachments"]
        assert [each["mac_addr"] for each in shown] == ["02:01:00:00:00:00"]
        (guest,) = running.cloud.fleet.drivers["host1"].spec_of(ServerId(server["id"])).vifs
        assert (guest.mac, guest.profile["pci_slot"]) == ("02:01:00:00:00:00", "0000:c0:00.0")
        refused = await admin.settled(await admin.boot(networks=[{"port": second["id"]}]))
        assert refused["status"] == "ERROR"
        assert "virtual functions" in refused["fault"]["message"]
        assert await used(admin, divided) == {"SRIOV_NET_VF": 0}
        direct = await made(admin, "/ports", "port", network_id=network, **{"binding:vnic_type": "direct"})
        beside = await admin.active(networks=[{"port": direct["id"]}])
        assert await used(admin, divided) == {"SRIOV_NET_VF": 1}
        await admin.gone(server["id"])
        assert await used(admin, whole) == {"SRIOV_NET_VF": 0}
        left = await show_port(admin, first["id"])
        assert left["binding:profile"] == {}
        assert left["mac_address"] != "02:01:00:00:00:00"
        again = await admin.active(networks=[{"port": second["id"]}])
        for each in (again, beside, refused):
            await admin.gone(each["id"])
        for port in (first, second, direct):
            await admin.network("DELETE", f"/ports/{port['id']}")
