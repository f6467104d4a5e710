"""The census that other tests rely on finds what is planted."""

import shutil

import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_shelve import until
from tests.helpers.guaranteed_ports import EGR, TWO, network_on, policy_of, providers

from moorage.model.ids import ProviderId
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.volume import KEY
from moorage.operations.steps.snapshot_image import MADE_FOR
from moorage.sql import Tx
from moorage.store.region import quotas
from moorage_testing.api_user import Person
from moorage_testing.leak_audit import census, leaks, nothing_leaked

NOBODY = "0d0c0b0a-0000-4000-8000-00000000ffff"


async def test_planted_leaks_are_found(running: Running) -> None:
    config, admin = running.config, running.admin
    server = await admin.active("one")
    host = server["OS-EXT-SRV-ATTR:host"]
    await nothing_leaked(config, admin)

    room = config.data / "hosts"
    other = next(plan.host for plan in running.cloud.plans if plan.host != host)
    doubled = room / other / "guests" / f"{server['id']}.json"
    shutil.copy(room / host / "guests" / doubled.name, doubled)
    network = await admin.id_of("network", "private")
    body = {"network_id": network, "device_id": "nobody", "device_owner": "compute:nova"}
    port = (await admin.network("POST", "/ports", {"port": body})).json()["port"]["id"]

    def charge(tx: Tx) -> None:
        quotas.reserve(tx, admin.project, {"instances": 1})

    def discharge(tx: Tx) -> None:
        quotas.release(tx, admin.project, {"instances": 1})

    await running.cloud.region.databases.region.write(charge)
    with pytest.raises(AssertionError, match="does not add up"):
        await nothing_leaked(config, admin, patience_s=0.0)
    found = "\n".join(leaks(await census(config, admin)))
    assert "has guests on" in found
    assert f"port {port} of no server" in found
    assert "is charged" in found

    doubled.unlink()
    await admin.network("DELETE", f"/ports/{port}")
    await running.cloud.region.databases.region.write(discharge)
    await nothing_leaked(config, admin, patience_s=0.0)


async def test_claims_that_differ_from_ports_are_found(start: Start) -> None:
    """Addresses of segments, and what a port is guaranteed: one more or less claimed than the ports have."""
    async with start(hosts=TWO) as running:
        config, admin = running.config, running.admin
        await providers(admin)
        network = await network_on(admin, "physnet1", qos_policy_id=await policy_of(admin, kbps=3_000))
        wanted = [{"uuid": network}, {"uuid": await admin.id_of("network", "routed")}]
        server = str((await admin.active("both", networks=wanted))["id"])
        seen = await nothing_leaked(config, admin)
        mine = {key: amount for key, amount in seen.claims[server].items() if key[1] in {EGR, IPV4_ADDRESS}}
        assert sorted(mine.values()) == [1, 3_000]
        for (provider, resource), amount in mine.items():
            for wrong in (amount + 1, amount - 1):
                await correct(running, server, resource, {ProviderId(provider): wrong} if wrong else {})
                found = "\n".join(leaks(await census(config, admin)))
                assert f"{server} holds" in found, (resource, wrong)
                assert "for its ports" in found
            await correct(running, server, resource, {ProviderId(provider): amount})
        await nothing_leaked(config, admin, patience_s=0.0)
        await admin.gone(server)


async def correct(running: Running, server: str, resource: str, truth: dict[ProviderId, int]) -> None:
    region = running.cloud.region
    rows = await region.databases.region.write(lambda tx: region.engine.correct(tx, server, resource, truth))
    region.engine.settle(rows)


async def test_unowned_volumes_and_images_are_found(running: Running) -> None:
    config, admin = running.config, running.admin
    server = (await admin.active("one"))["id"]
    messages: list[str] = []
    strays: list[tuple[str, str]] = []
    for volume in ({}, {"metadata": {KEY: NOBODY}}):
        made = await admin.volume("POST", "/volumes", {"volume": {"size": 1, **volume}})
        strays.append(("volume", made.json()["volume"]["id"]))
    messages.append(f"volume {strays[1][1]} (")
    await until_available(admin, strays[0][1])
    held = {"attachment": {"volume_uuid": strays[0][1], "instance_uuid": server, "connector": None}}
    reply = await admin.volume("POST", "/attachments", held)
    assert reply.status_code == 200, reply.text
    messages.append(f"attachment {reply.json()['attachment']['id']} of no server")
    image = {"name": "half", MADE_FOR: "snapshot", "instance_uuid": server}
    images = f"{config.api.image.url}/v2/images"
    made = await admin.http.post(images, json=image)
    assert made.status_code == 201, made.text
    messages.append(f"image {made.json()['id']} (snapshot, queued)")
    found = "\n".join(leaks(await census(config, admin)))
    assert [each for each in messages if each not in found] == []
    assert len(found.splitlines()) == len(messages), found

    await admin.http.delete(f"{images}/{made.json()['id']}")
    await admin.volume("DELETE", f"/attachments/{reply.json()['attachment']['id']}")
    for _, volume in strays:
        await until_available(admin, volume)
        assert (await admin.volume("DELETE", f"/volumes/{volume}")).status_code == 202
    await nothing_leaked(config, admin)


async def until_available(admin: Person, volume: str) -> None:
    async def status() -> str:
        return str((await admin.volume("GET", f"/volumes/{volume}")).json()["volume"]["status"])

    await until(status, lambda seen: seen == "available")
