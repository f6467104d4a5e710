"""A conductor whose credentials the network service refuses: this release falls back and warns, the next refuses to start (S0.10)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_rolling_upgrade import Upgrading, fleet
from tests.helpers.guaranteed_ports import TWO, network_on, policy_of, providers

from moorage.drivers.fault_injection import VerbDial
from moorage.main import status
from moorage.main.composition import open_region, start_conducting
from moorage.main.config import Config, NetworkConfig, ServiceSettings, ServiceUser, Upgrade
from moorage.main.service_clients import make_clients
from moorage.model.errors import Invalid
from moorage.operations.boot.boot import bind_ports
from moorage.operations.gates import Credentials
from moorage.saga import decode_lines
from moorage.saga.journal import Failed
from moorage.store.region import operations as region_operations


def with_the_wrong_password(running: Running, **changes: object) -> Config:
    """The configuration of another conductor machine, where somebody forgot to change the password."""
    here = running.config
    elsewhere = msgspec.structs.replace(
        here,
        identity=ServiceSettings(url=f"{here.api.identity.url}/v3"),
        network=NetworkConfig(url=here.api.network.url),
        service_user=ServiceUser(password="no longer this"),
    )
    return msgspec.structs.replace(elsewhere, **changes)


@asynccontextmanager
async def lost(running: Running) -> AsyncIterator[None]:
    """Meanwhile the conductor of this cloud has no way to the network service; its API has."""
    region = running.cloud.region
    assert region.conductor is not None
    clients = make_clients(with_the_wrong_password(running))
    try:
        for network, state in ((clients.network, Credentials.REFUSED), (region.clients.network, Credentials.WORKING)):
            region.conductor.context = replace(region.conductor.context, network=network)
            region.gates._context = replace(region.gates._context, network=network)
            assert (await region.gates.try_mine(region.context.hosts.me)).state is state
            await region.gates.poll()
            if state is Credentials.REFUSED:
                yield
    finally:
        await clients.close()


async def test_this_release_falls_back_and_logs_a_warning(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    async with start(hosts=fleet(2, 2)) as running:
        at = await Upgrading.of(running)
        assert await at.open_gates() == (True, False)
        early = await running.admin.active("made-early")
        async with lost(running):
            assert "does not accept this conductor's credentials" in caplog.text
            assert await at.open_gates() == (False, False)
            told = await at.gates()
            assert told["credentials"] == "refused"
            assert "the next release refuses to start like this" in told["warnings"][0]
            late = await running.admin.active("made-late")
            assert at.writes_by_hosts() == {"PUT ports": 2, "POST ports": 1}
            for server in (early, late):
                assert (await at.port_of(server["id"]))["binding:host_id"] == server["OS-EXT-SRV-ATTR:host"]
                await running.admin.gone(server["id"])
            assert at.writes_by_hosts()["DELETE ports"] == 2
        assert await at.open_gates() == (True, False)
        await at.close()


async def test_a_failed_boot_leaves_nothing_without_credentials(start: Start) -> None:
    async with start(hosts=fleet(1, 2, 1)) as running:
        at = await Upgrading.of(running)
        running.set_faults_everywhere(start_guest=VerbDial(fail_times=9, says="no space left"))
        async with lost(running):
            server = await running.admin.settled(await running.admin.boot("nowhere"))
            assert server["status"] == "ERROR"
            assert "no space left" in server["fault"]["message"]
            await running.admin.gone(server["id"])
            assert at.writes_by_hosts()["POST ports"] == at.writes_by_hosts()["DELETE ports"] == 1
        await at.close()


async def test_hosts_of_level_3_are_refused_with_the_reason(start: Start) -> None:
    async with start(hosts=fleet(3, 3)) as running:
        async with lost(running):
            server = await running.admin.settled(await running.admin.boot("nobody-could-bind"))
            assert server["status"] == "ERROR"
            assert "the conductor has no credentials for the network service" in server["fault"]["message"]
            none = await running.admin.active("needs-no-port", networks="none")
            await running.admin.gone(none["id"])
        await running.admin.gone(server["id"])


async def test_the_next_release_refuses_to_start(running: Running) -> None:
    wanted = with_the_wrong_password(running)
    told = await status.make_report(wanted)
    assert told.credentials is Credentials.REFUSED
    assert told.warnings
    required = with_the_wrong_password(running, upgrade=Upgrade(conductor_credentials="required"))
    with pytest.raises(Invalid, match=r"this release requires them: set \[service_user\]"):
        await status.make_report(required)
    region = await open_region(required)
    try:
        with pytest.raises(Invalid, match="credentials for the network service do not work"):
            await start_conducting(region, alone=False)
    finally:
        await region.stop()
    fine = msgspec.structs.replace(required, service_user=ServiceUser(password=_password(running)))
    assert (await status.make_report(fine)).credentials is Credentials.WORKING


def _password(running: Running) -> str:
    return (running.config.data / "secrets" / "service-password").read_text().strip()


async def test_an_outage_does_not_change_how_boots_are_done(running: Running) -> None:
    """Nobody answered that could say: what was known counts on."""
    region = running.cloud.region
    nowhere = msgspec.structs.replace(running.config, network=NetworkConfig(url="http://127.0.0.1:1"))
    clients = make_clients(nowhere, {"identity": running.cloud.embedded.apps["identity"]})
    region.gates._context = replace(region.gates._context, network=clients.network)
    assert (await region.gates.try_mine(region.context.hosts.me)).state is Credentials.WORKING
    await region.gates.poll()
    assert region.context.gates().bind_in_conductor
    await clients.close()


async def test_interfaces_are_neither_attached_nor_detached_and_the_server_can_be_deleted(start: Start) -> None:
    async with start(hosts=fleet(2, 2)) as running:
        at = await Upgrading.of(running)
        async with lost(running):
            server = (await running.admin.active("made-late"))["id"]
            port = (await at.port_of(server))["id"]
            network = await running.admin.id_of("network", "private")
            attached = await running.admin.compute(
                "POST", f"/servers/{server}/os-interface", {"interfaceAttachment": {"net_id": network}}
            )
            detached = await running.admin.compute("DELETE", f"/servers/{server}/os-interface/{port}")
            for refused in (attached, detached):
                assert refused.status_code == 503, refused.text
                assert "the network service does not accept the credentials" in refused.text
            await running.admin.gone(server)
        await at.close()


async def test_a_missing_service_role_is_detected_and_blames_no_host(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may do nearly everything, but not write a binding profile: the gate says which role is missing, and so does a bind."""
    monkeypatch.setattr(bind_ports, "patience_s", 3.0)
    both = msgspec.structs.replace(TWO, physical_networks=(("physnet1",), ("physnet1",)))
    async with start(hosts=both) as running:
        admin, region = running.admin, running.cloud.region
        identity = f"{running.config.api.identity.url}/v3"

        async def first(what: str, name: str) -> str:
            rows = (await admin.http.get(f"{identity}/{what}", params={"name": name})).json()[what]
            return str(rows[0]["id"])

        mine = running.config.service_user
        user, project, role = (
            await first("users", mine.user),
            await first("projects", mine.project),
            await first("roles", "service"),
        )
        assert (await admin.http.delete(f"{identity}/projects/{project}/users/{user}/roles/{role}")).is_success
        (neighbour,) = [each for each in region.clients.services if each.name == "network"]
        assert neighbour.tokens is not None
        neighbour.tokens._token = ""  # the next call has a token without the role
        neighbour.tokens._good_until = 0.0
        network = await network_on(admin, "physnet1", qos_policy_id=await policy_of(admin, kbps=1000))
        await providers(admin)
        server = await admin.settled(await admin.boot("guaranteed", networks=[{"uuid": network}]))
        assert server["status"] == "ERROR"
        assert "the network service does not let us bind ports" in server["fault"]["message"]
        assert "[service_user] lacks the role service" in server["fault"]["details"]
        told = await region.databases.region.read(lambda tx: region_operations.of_server(tx, server["id"]))
        assert [line for each in told for line in decode_lines(each.journal) if isinstance(line, Failed)] == []
        tried = await region.gates.try_mine(region.context.hosts.me)
        assert tried.state is Credentials.REFUSED
        assert "lacks the role service" in tried.why
        await admin.gone(server["id"])
