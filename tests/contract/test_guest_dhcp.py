"""The configuration of dnsmasq, exactly. What guests do with it is in tests/hypervisor/test_guest_services.py."""

from pathlib import Path

import pytest

from moorage.clients.network.decoding import network_of, port_of, subnet_of
from moorage.drivers.libvirt.dhcp import DhcpFiles, DhcpPlaces, ServedNetwork, files_of
from moorage.drivers.libvirt.system_users import SystemUser
from moorage.model.guest import VifAddress, VifData
from moorage.model.host_ports import vif_of
from moorage.model.ids import NetworkId, PortId, SubnetId
from moorage.model.network import DhcpOption

HERE, READ_LATER = Path("/host/networks/mrgnet"), Path("/run/moorage/0123/mrgnet")
USER = SystemUser("dnsmasq", 999, 65_534, "nogroup")
COMMON = """\
interface=mrgnet
except-interface=lo
bind-dynamic
leasefile-ro
dhcp-lease-max=65536
no-ping
dhcp-authoritative
pid-file=/host/networks/mrgnet/pid
dhcp-hostsfile=/run/moorage/0123/mrgnet/hosts
dhcp-optsfile=/run/moorage/0123/mrgnet/options
addn-hosts=/run/moorage/0123/mrgnet/names
no-hosts
no-resolv
no-poll
domain-needed
dhcp-option-force=option:mtu,1450
"""
LESS_THAN_ROOT = "user=dnsmasq\ngroup=nogroup\n"


def a_vif(*addresses: VifAddress, **more: object) -> VifData:
    return VifData(
        PortId("0123456789ab-cdef"), NetworkId("net"), "fa:16:3e:00:00:01", "bridge", mtu=1450, addresses=addresses, **more  # type: ignore[arg-type]
    )  # fmt: skip


def dhcp_files(network: ServedNetwork) -> DhcpFiles:
    return files_of(DhcpPlaces(HERE, READ_LATER, USER), network)


def test_addresses_names_routes_and_options() -> None:
    v4 = VifAddress(
        "10.0.0.5", SubnetId("4"), "10.0.0.0/24", "10.0.0.1", ("9.9.9.9", "fd00::53"), (("10.9.0.0/16", "10.0.0.7"),)
    )
    v6 = VifAddress(
        "fd00::5", SubnetId("6"), "fd00::/64", "fd00::1", ("fd00::53",), address_mode="dhcpv6-stateful", ra_mode="dhcpv6-stateful"
    )  # fmt: skip
    options = (
        DhcpOption("bootfile-name", "pxe"),
        DhcpOption("150", "1.2.3.4"),
        DhcpOption("bootfile-url", "tftp://x", 6),
    )
    vif = a_vif(v4, v6, dns_name="web", dns_domain="example.org.", dhcp_options=options)
    made = dhcp_files(ServedNetwork("mrgnet", [vif], forwarders=("8.8.8.8",)))
    assert made.conf == COMMON + (
        "server=8.8.8.8\n" + LESS_THAN_ROOT + "domain=example.org\nlocal=/example.org/\n"
        "dhcp-range=set:net10-0-0-0-24,10.0.0.0,static,255.255.255.0,86400s\n"
        "shared-network=mrgnet,10.0.0.0\n"
        "dhcp-option=tag:net10-0-0-0-24,option:router,10.0.0.1\n"
        "dhcp-option=tag:net10-0-0-0-24,option:dns-server,9.9.9.9\n"
        "dhcp-option=tag:net10-0-0-0-24,option:classless-static-route,10.9.0.0/16,10.0.0.7,0.0.0.0/0,10.0.0.1\n"
        "dhcp-option=tag:net10-0-0-0-24,249,10.9.0.0/16,10.0.0.7,0.0.0.0/0,10.0.0.1\n"
        "dhcp-range=set:netfd00---64,fd00::,static,64,86400s\n"
        "dhcp-option=tag:netfd00---64,option6:dns-server,[fd00::53]\n"
        "enable-ra\nra-param=mrgnet,mtu:1450,600\n"
    )
    assert made.hosts == (
        "fa:16:3e:00:00:01,set:net10-0-0-0-24,set:port0123456789a,10.0.0.5,web\n"
        "fa:16:3e:00:00:01,set:netfd00---64,set:port0123456789a,[fd00::5],web\n"
    )
    assert made.names == "10.0.0.5 web.example.org web\nfd00::5 web.example.org web\n"
    assert made.options == (
        "tag:port0123456789a,option:bootfile-name,pxe\n"
        "tag:port0123456789a,150,1.2.3.4\n"
        "tag:port0123456789a,option6:bootfile-url,tftp://x\n"
    )


@pytest.mark.parametrize(("mode", "kind"), [("slaac", "ra-only"), ("dhcpv6-stateless", "ra-stateless")])
def test_prefixes_are_advertised(mode: str, kind: str) -> None:
    v6 = VifAddress("fd00::5", SubnetId("6"), "fd00::/64", "fd00::1", address_mode=mode, ra_mode=mode)
    made = dhcp_files(ServedNetwork("mrgnet", [a_vif(v6)]))
    ending = f"dhcp-range=set:netfd00---64,fd00::,{kind},64,86400s\nenable-ra\nra-param=mrgnet,mtu:1450,600\n"
    assert made.conf == COMMON + LESS_THAN_ROOT + ending
    assert made.hosts == ""


def test_without_a_gateway_guests_get_a_route_to_metadata() -> None:
    network = ServedNetwork(
        "mrgnet",
        [a_vif(VifAddress("10.0.0.5", SubnetId("4"), "10.0.0.0/24"))],
        metadata=True,
        service_address=(mine := "169.254.64.7"),
    )
    assert dhcp_files(network).conf == "port=0\n" + COMMON + LESS_THAN_ROOT + (
        "dhcp-range=set:net10-0-0-0-24,10.0.0.0,static,255.255.255.0,86400s\n"
        "shared-network=mrgnet,10.0.0.0\n"
        "dhcp-option=tag:net10-0-0-0-24,option:router\n"
        "dhcp-option=tag:net10-0-0-0-24,option:dns-server\n"
        f"dhcp-option=tag:net10-0-0-0-24,option:classless-static-route,{mine}/32,0.0.0.0,169.254.169.254/32,0.0.0.0\n"
        f"dhcp-option=tag:net10-0-0-0-24,249,{mine}/32,0.0.0.0,169.254.169.254/32,0.0.0.0\n"
    )


def test_user_values_cannot_add_configuration_lines() -> None:
    v4 = VifAddress("10.0.0.5", SubnetId("4"), "10.0.0.0/24", "10.0.0.1")
    options = (DhcpOption("a\nb", "x"), DhcpOption("name", "x\ndhcp-script=/bin/sh"), DhcpOption("Name", "x"))
    vif = a_vif(v4, dns_name="web\n1.2.3.4 bank", dns_domain="x\nconf-file=/etc/shadow", dhcp_options=options)
    made = dhcp_files(ServedNetwork("mrgnet", [vif]))
    assert (made.names, made.options) == ("", "")
    assert "conf-file" not in made.conf
    assert made.hosts == "fa:16:3e:00:00:01,set:net10-0-0-0-24,set:port0123456789a,10.0.0.5\n"


def test_subnets_without_dhcp_are_not_served() -> None:
    still = VifAddress("10.0.0.5", SubnetId("4"), "10.0.0.0/24", "10.0.0.1", dhcp=False)
    assert not ServedNetwork("mrgnet", [a_vif(still)]).has_dhcp


def test_dhcp_options_of_the_network_service_reach_the_host() -> None:
    subnet = subnet_of({
        "id": "s", "network_id": "n", "cidr": "fd00::/64", "ip_version": 6, "gateway_ip": "fd00::1", "enable_dhcp": True,
        "ipv6_address_mode": "slaac", "ipv6_ra_mode": "slaac", "dns_nameservers": ["fd00::53"],
        "host_routes": [{"destination": "fd01::/64", "nexthop": "fd00::7"}],
    })  # fmt: skip
    facts = network_of({"id": "n", "dns_domain": "example.org."}, (), (subnet,))
    port = port_of({
        "id": "p", "network_id": "n", "mac_address": "fa:16:3e:00:00:01", "dns_name": "web",
        "fixed_ips": [{"subnet_id": "s", "ip_address": "fd00::5"}],
        "extra_dhcp_opts": [{"opt_name": "150", "opt_value": "1.2.3.4", "ip_version": 4}, {"opt_name": "x", "opt_value": None}],
    })  # fmt: skip
    vif = vif_of(port, facts)
    assert vif.addresses == (
        VifAddress("fd00::5", SubnetId("s"), "fd00::/64", "fd00::1", ("fd00::53",), (("fd01::/64", "fd00::7"),), True, "slaac", "slaac"),
    )  # fmt: skip
    assert (vif.dns_name, vif.dns_domain, vif.dhcp_options) == ("web", "example.org.", (DhcpOption("150", "1.2.3.4"),))
