"""S1.17 with a reschedule: the first host that was chosen for a guaranteed port refuses, and nothing of it is left there."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_shelve import held
from tests.helpers.explained_claims import explained
from tests.helpers.guaranteed_ports import (
    EGR,
    KBPS,
    network_on,
    placement,
    policy_of,
    port_on,
    providers,
    show_port,
    used,
)
from tests.helpers.resized_cloud import asked, assert_nothing_to_repair, host_of, migrations, resized

from moorage.main.config import Hosts
from moorage.model.errors import HostFailed

pytestmark = pytest.mark.asyncio(loop_scope="module")
CLOUD = {"hosts": Hosts(count=6, physical_networks=(("physnet1",),), bandwidth_kbps=KBPS, packet_rate_kpps=100)}
GUARANTEED = KBPS // 2


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


def refuse_once(running: Running, monkeypatch: pytest.MonkeyPatch, what: str, source: str) -> list[str]:
    """The first host that is tried refuses, before its work or after it; answers its name, once it has."""
    context, refused = running.cloud.region.context, list[str]()
    ask, bind = context.hosts.ask, context.network.bind_inactive

    async def asked_of(to: Any, *rest: Any, **more: Any) -> Any:
        if to.host != source and not refused:
            refused.append(to.host)
            raise HostFailed("the host takes no guests", code="host_failed")
        return await ask(to, *rest, **more)

    async def bound(server: str, host: str, *rest: Any, **more: Any) -> Any:
        answer = await bind(server, host, *rest, **more)
        if not refused:
            refused.append(host)
            raise HostFailed("the port cannot be there", code="binding_failed")
        return answer

    if what == "move_target":
        monkeypatch.setattr(context.hosts, "ask", asked_of)
    else:
        monkeypatch.setattr(context.network, "bind_inactive", bound)
    return refused


@pytest.mark.parametrize(
    ("action", "refusing", "ending"),
    [
        ("resize", "move_target", "confirmResize"),
        ("resize", "bind_inactive", "revertResize"),
        ("migrate", "bind_inactive", "confirmResize"),
    ],
)
async def test_guarantees_move_to_the_next_host(
    running: Running, monkeypatch: pytest.MonkeyPatch, action: str, refusing: str, ending: str
) -> None:
    admin = running.admin
    policy, network = await policy_of(admin, kbps=GUARANTEED), await network_on(admin, "physnet1")
    port = await port_on(admin, network, policy)
    server = await admin.active("a", networks=[{"port": port["id"]}])
    id, here, names = server["id"], host_of(server), await providers(admin)

    def bridge(host: str) -> str:
        return next(uuid for name, uuid in names.items() if name.startswith(f"{host}:Open vSwitch agent:br-"))

    async def bound() -> dict[str, str]:
        reply = await admin.network("GET", f"/ports/{port['id']}/bindings")
        return {each["host"]: each["status"] for each in reply.json()["bindings"]}

    async def is_on(host: str) -> None:
        """Allocation, binding and what is in use say the same (S1.17)."""
        claimed = (await placement(admin, f"/allocations/{id}"))["allocations"]
        assert claimed[bridge(host)]["resources"][EGR] == GUARANTEED
        assert [each for each in claimed if each in names.values() and "br-" in _name(names, each)] == [bridge(host)]
        shown = await show_port(admin, port["id"])
        assert shown["binding:host_id"] == host
        named = set(shown["binding:profile"]["allocation"].values())
        assert bridge(host) in named
        assert named <= claimed.keys()

    refused = refuse_once(running, monkeypatch, refusing, here)
    moved = resized(running, id) if action == "resize" else asked(running, id, {"migrate": None}, "VERIFY_RESIZE")
    there = host_of(await moved)
    assert len(refused) == 1
    assert len({here, there, *refused}) == 3
    (move,) = await migrations(running, id)
    await is_on(there)
    assert (await placement(admin, f"/allocations/{move['uuid']}"))["allocations"][bridge(here)]["resources"][
        EGR
    ] == GUARANTEED
    in_use = {host: (await used(admin, bridge(host)))[EGR] for host in (here, there, *refused)}
    assert in_use == {here: GUARANTEED, there: GUARANTEED, refused[0]: 0}
    assert await bound() == {here: "INACTIVE", there: "ACTIVE"}
    told = next(each for each in (await explained(admin, id))["operations"] if each["name"] == "resize")
    assert [each["host"] for each in told["attempts"]] == [refused[0], there]
    assert told["attempts"][0]["failed"]["step"] == (
        "prepare_host" if refusing == "move_target" else "bind_destination"
    )
    await assert_nothing_to_repair(running)
    await asked(running, id, {ending: None}, "ACTIVE", 204 if ending == "confirmResize" else 202)
    stays, left = (there, here) if ending == "confirmResize" else (here, there)
    await is_on(stays)
    assert await held(running, move["uuid"]) == {}
    assert (await used(admin, bridge(left)))[EGR] == 0
    assert await bound() == {stays: "ACTIVE"}
    await assert_nothing_to_repair(running)
    await admin.gone(id)
    await admin.network("DELETE", f"/ports/{port['id']}")
    await admin.network("DELETE", f"/networks/{network}")
    await admin.network("DELETE", f"/qos/policies/{policy}")


def _name(names: dict[str, str], provider: str) -> str:
    return next(name for name, uuid in names.items() if uuid == provider)
