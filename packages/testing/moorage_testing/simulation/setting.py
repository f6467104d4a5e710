"""What the simulated cloud has before anything happens: networks of every kind, policies, flavors, an aggregate; and its ids."""

from typing import Any

import msgspec

from moorage_testing.simulation.client import SimulatedClient
from moorage_testing.simulation.cloud import SimulatedCloud
from moorage_testing.simulation.plan import HOSTS, ZONE

TRAIT = "CUSTOM_SIMULATED"


class KnownIds(msgspec.Struct, frozen=True):
    """Ids and tokens that orders are made of."""

    admin_token: str
    demo_token: str
    service_token: str
    image: str
    other_image: str
    quiesced_image: str
    """Volumes made of it are copied only while their server's guest is still."""
    networks: dict[str, str]
    policy: str
    """A QoS policy with guaranteed bandwidth."""
    flavors: dict[str, str]
    services: dict[str, str]
    """Host → its service, as `/os-services` names it."""
    providers: dict[str, str]
    """Host → its resource provider."""
    aggregate: int
    """In the zone `ZONE`; at first it has the hosts of the second cell."""


async def made(client: SimulatedClient, service: str, path: str, kind: str, **said: Any) -> dict[str, Any]:
    """One thing, made."""
    reply = await client.ask(service, "POST", path, {kind: said})
    if reply.status not in {200, 201}:
        raise AssertionError(f"POST {path}: {reply}")
    found: dict[str, Any] = reply.body[kind]
    return found


async def listed(client: SimulatedClient, service: str, path: str, kind: str) -> list[dict[str, Any]]:
    reply = await client.ask(service, "GET", path)
    if reply.status != 200:
        raise AssertionError(f"GET {path}: {reply}")
    found: list[dict[str, Any]] = reply.body[kind]
    return found


async def set_up(cloud: SimulatedCloud, tokens: dict[str, str], demo: str) -> KnownIds:
    """Make it, as an administrator would; `demo` is the project that has the networks, so that another has none and may ask for `auto`."""
    admin = SimulatedClient(cloud, tokens["admin"])
    policy = (await made(admin, "network", "/qos/policies", "policy", name="guaranteed", shared=True))["id"]
    for direction in ("egress", "ingress"):
        rules = f"/qos/policies/{policy}/minimum_bandwidth_rules"
        await made(admin, "network", rules, "minimum_bandwidth_rule", min_kbps=2_000, direction=direction)
    await _networks(admin, policy, demo)
    await made(
        admin, "compute", "/flavors", "flavor", id="traited", name="traited", vcpus=1, ram=128, disk=1, **_public()
    )
    await admin.ask(
        "compute", "POST", "/flavors/traited/os-extra_specs", {"extra_specs": {f"trait:{TRAIT}": "required"}}
    )
    await admin.ask("placement", "PUT", f"/traits/{TRAIT}")
    aggregate = await made(admin, "compute", "/os-aggregates", "aggregate", name="second", availability_zone=ZONE)
    for plan in [each for each in cloud.plans if each.host in HOSTS[-2:]]:
        reply = await admin.ask(
            "compute", "POST", f"/os-aggregates/{aggregate['id']}/action", {"add_host": {"host": plan.host}}
        )
        assert reply.status == 200, reply
    other = await _image(admin, "other")
    quiesced = await _image(admin, "quiesced", hw_qemu_guest_agent="yes", os_require_quiesce="yes")
    caps = {"volumes": -1, "gigabytes": -1, "snapshots": -1}
    reply = await admin.ask("volume", "PUT", f"/os-quota-sets/{demo}", {"quota_set": caps})
    assert reply.status == 200, reply
    services = await listed(admin, "compute", "/os-services", "services")
    providers = await listed(admin, "placement", "/resource_providers", "resource_providers")
    images = await listed(admin, "image", "/v2/images", "images")
    networks = await listed(admin, "network", "/networks", "networks")
    return KnownIds(
        tokens["admin"],
        tokens["demo"],
        tokens["service"],
        image=next(each["id"] for each in images if each["id"] not in {other, quiesced}),
        other_image=other,
        quiesced_image=quiesced,
        networks={each["name"]: each["id"] for each in networks},
        policy=policy,
        flavors={"nano": "42", "tiny": "1", "micro": "84", "traited": "traited"},
        services={each["host"]: each["id"] for each in services if each["binary"] == "nova-compute"},
        providers={each["name"]: each["uuid"] for each in providers if ":" not in each["name"]},
        aggregate=aggregate["id"],
    )


async def _image(admin: SimulatedClient, name: str, **properties: str) -> str:
    """In addition to the one of a new cloud, so that a rebuild uses another image than the boot."""
    said = {"name": name, "disk_format": "raw", "container_format": "bare", "visibility": "public", "min_disk": 1}
    said |= properties
    reply = await admin.ask("image", "POST", "/v2/images", said)
    assert reply.status == 201, reply
    image = str(reply.body["id"])
    filled = await admin.ask("image", "PUT", f"/v2/images/{image}/file", b"another image")
    assert filled.status == 204, filled
    return image


def _public() -> dict[str, Any]:
    return {"os-flavor-access:is_public": True, "swap": 0, "OS-FLV-EXT-DATA:ephemeral": 0}


async def _networks(admin: SimulatedClient, policy: str, demo: str) -> None:
    """In addition to those of a new cloud: one with a policy, one for direct ports, and what `auto` needs."""
    wire = {"provider:network_type": "vlan", "provider:physical_network": "physnet1"}
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("assured", {"qos_policy_id": policy, "project_id": demo, **wire}),
        ("direct", {"project_id": demo, **wire}),
        ("outside", {"router:external": True, "is_default": True}),
    ]
    for number, (name, more) in enumerate(wanted):
        network = await made(admin, "network", "/networks", "network", name=name, **more)
        await made(
            admin,
            "network",
            "/subnets",
            "subnet",
            network_id=network["id"],
            cidr=f"10.{90 + number}.0.0/24",
            ip_version=4,
        )
    (private,) = [each for each in await listed(admin, "network", "/networks", "networks") if each["name"] == "private"]
    await admin.ask("network", "PUT", f"/networks/{private['id']}", {"network": {"shared": False}})
    pool = {"name": "pool", "prefixes": ["10.64.0.0/16"], "default_prefixlen": 26, "is_default": True, "shared": True}
    await made(admin, "network", "/subnetpools", "subnetpool", **pool)
