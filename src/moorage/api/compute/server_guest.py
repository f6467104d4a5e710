"""What is asked of a guest that runs: its password, a crash dump, its diagnostics (Compute API: changePassword, trigger_crash_dump,
`GET /servers/{id}/diagnostics`)."""

from functools import partial

import msgspec

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_lookup import in_state, not_locked, service_of, the_server
from moorage.api.routes import Params, Route
from moorage.api.schema import Body
from moorage.api.version_changes import v2_048_servers
from moorage.model.diagnostics import GuestDiagnostics
from moorage.model.errors import Conflict, HostFailed, NotBuilt
from moorage.model.server import VmState
from moorage.operations.guest_service import cannot

ACTION = "/servers/{id}/action"
DUMP_FROM = (VmState.ACTIVE, VmState.PAUSED, VmState.RESCUED, VmState.RESIZED, VmState.ERROR)
KIB_PER_MIB = 1024


class NewPassword(Body):
    admin_pass: str = msgspec.field(name="adminPass")


class PasswordBody(Body):
    change: NewPassword = msgspec.field(name="changePassword")


async def change_password(call: Call[PasswordBody]) -> Response:
    """Set a new password in the guest. It is done before the answer, because no password is stored.

    Raises Conflict when the guest or its host does not do it.
    """
    server = await the_server(call, "os_compute_api:os-admin-password")
    not_locked(call, server)
    in_state(server, "changePassword", (VmState.ACTIVE,))
    try:
        await service_of(call).change_password(call.principal, server, call.body.change.admin_pass, call.request_id)
    except HostFailed as failure:
        why = "its host has no way to do that" if cannot(failure) else failure.public
        raise Conflict(f"Failed to set admin password on {server.id}: {why}.", private=str(failure)) from failure
    return Response(202)


async def crash_dump(call: AnyCall) -> Response:
    """Begin a crash dump in the guest. Raises Conflict while the server has no host."""
    server = await the_server(call, "os_compute_api:servers:trigger_crash_dump")
    not_locked(call, server)
    if server.host is None:
        raise Conflict(f"Instance {server.id} is not ready")
    check = partial(in_state, action="trigger_crash_dump", states=DUMP_FROM)
    check(server)
    await service_of(call).crash_dump(call.principal, server, check=check, request_id=call.request_id)
    return Response(202)


async def diagnostics(call: Call[None]) -> Response:
    """Show the guest's diagnostics, read from its host now; the free form of old versions follows from the fixed one.

    Raises Conflict while the server has no host, or when the host fails, and NotBuilt when the driver has no
    diagnostics.
    """
    server = await the_server(call, "os_compute_api:os-server-diagnostics")
    if server.host is None:
        raise Conflict(f"Instance {server.id} is not ready")
    try:
        report = await service_of(call).diagnostics(server)
    except HostFailed as failure:
        if cannot(failure):
            raise NotBuilt("The requested functionality is not supported.") from failure
        why = f"Cannot 'get_diagnostics' instance {server.id}: {failure.public}."
        raise Conflict(why, private=str(failure)) from failure
    if call.version < v2_048_servers.FIXED_FORM:
        return Response(200, _free_form(report))
    counts = {
        "num_cpus": len(report.cpu_details),
        "num_nics": len(report.nic_details),
        "num_disks": len(report.disk_details),
    }
    return Response(200, {**msgspec.to_builtins(report), **counts})


def _free_form(report: GuestDiagnostics) -> dict[str, int]:
    """Whatever the hypervisor said, in libvirt's names, as tools know it."""
    values: dict[str, int | None] = {}
    for cpu in report.cpu_details:
        values[f"cpu{cpu.id}_time"] = cpu.time
    if report.memory_details.maximum is not None:
        values["memory"] = report.memory_details.maximum * KIB_PER_MIB
    for place, disk in enumerate(report.disk_details):
        name = f"vd{chr(ord('a') + place % 26)}"
        values[f"{name}_read"] = disk.read_bytes
        values[f"{name}_read_req"] = disk.read_requests
        values[f"{name}_write"] = disk.write_bytes
        values[f"{name}_write_req"] = disk.write_requests
        values[f"{name}_errors"] = -1 if disk.errors_count is None else disk.errors_count
    for place, nic in enumerate(report.nic_details):
        name = f"vnet{place}"
        values[f"{name}_rx"] = nic.rx_octets
        values[f"{name}_tx"] = nic.tx_octets
        for way in ("rx", "tx"):
            for what in ("drop", "errors", "packets"):
                values[f"{name}_{way}_{what}"] = getattr(nic, f"{way}_{what}")
    return {name: value for name, value in values.items() if value is not None}


ROUTES = (
    Route("POST", ACTION, change_password, takes=PasswordBody, action="changePassword"),
    Route("POST", ACTION, crash_dump, action="trigger_crash_dump"),
    Route("GET", "/servers/{id}/diagnostics", diagnostics, params=Params()),
)
