"""What the tests of resizes in a whole cloud share."""

from typing import Any

from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.conductor.reconcilers.orphan_attachments import OrphanAttachments
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.conductor.reconcilers.port_drift import PortDrift
from moorage.conductor.reconcilers.quota_usage import QuotaUsage
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId
from tests.cloud.conftest import Running
from tests.cloud.test_shelve import act, failure, until


def host_of(server: dict[str, Any]) -> str:
    return str(server["OS-EXT-SRV-ATTR:host"])


async def asked(running: Running, server: str, action: dict[str, Any], status: str, code: int = 202) -> dict[str, Any]:
    """The server, when it came to that status; nothing shows while a move is being confirmed, as in Nova."""
    reply = await act(running, server, action)
    assert reply.status_code == code, reply.text
    if "confirmResize" in action:
        await until(lambda: running.admin.settled(server), lambda seen: seen["status"] != "VERIFY_RESIZE")
    seen = await running.admin.settled(server)
    await running.wait_until_unlocked(server)  # bindings and quota are seen to after the server
    assert seen["status"] == status, (await failure(running, server), await running.admin.operations_of(server))
    return dict(seen)


async def resized(running: Running, server: str, flavor: str = "m1.micro") -> dict[str, Any]:
    wanted = await running.admin.id_of("flavor", flavor)
    return await asked(running, server, {"resize": {"flavorRef": wanted}}, "VERIFY_RESIZE")


async def migrations(running: Running, server: str) -> list[dict[str, Any]]:
    reply = await running.admin.compute("GET", "/os-migrations", instance_uuid=server)
    return list(reply.json()["migrations"])


async def quota(running: Running) -> tuple[int, int]:
    reply = await running.admin.compute("GET", "/limits")
    used = reply.json()["limits"]["absolute"]
    return used["totalCoresUsed"], used["totalRAMUsed"]


async def assert_nothing_to_repair(running: Running) -> None:
    """No round of the reconcilers finds anything."""
    context = running.cloud.region.context
    claims = await OrphanAllocations(context).run()
    assert (claims.released, claims.drifted) == ((), 0)
    assert (await QuotaUsage(context).run()).mended == ()
    drift = await PortDrift(context).run()
    assert (drift.mended, drift.amiss) == ((), ())
    attachments = await OrphanAttachments(context).run()
    assert (attachments.dropped, attachments.amiss, attachments.mended) == ((), (), 0)
    await OrphanPorts(context).run()


def disk(running: Running, server: dict[str, Any]) -> bytes:
    return running.cloud.fleet.drivers[host_of(server)].disk_of(ServerId(server["id"]))


def power(running: Running, host: str, server: str) -> PowerState:
    return running.cloud.fleet.drivers[host].power_of(ServerId(server))
