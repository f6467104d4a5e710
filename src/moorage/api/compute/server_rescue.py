"""The actions `rescue` and `unrescue`."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import msgspec

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_bodies import Uuid
from moorage.api.compute.server_lookup import in_state, not_locked, service_of, the_server
from moorage.api.compute.servers import new_password
from moorage.api.routes import Route
from moorage.api.schema import Body
from moorage.model.server import VmState
from moorage.operations.guest.rescue import RescueRequest

SERVERS_ON_VOLUMES = (2, 87)
ACTION = "/servers/{id}/action"
FROM = (VmState.ACTIVE, VmState.STOPPED, VmState.ERROR)


class RescueFields(Body):
    never_null: ClassVar[Mapping[str, str]] = {"adminPass": "'string'", "rescue_image_ref": "'string'"}

    admin_pass: str | None = msgspec.field(name="adminPass", default=None)
    rescue_image_ref: Uuid | None = None


class RescueBody(Body):
    rescue: RescueFields | None


async def rescue(call: Call[RescueBody]) -> Response:
    """200, and not 202, as Nova answers; it is accepted when it is answered."""
    server = await the_server(call, "os_compute_api:os-rescue")
    not_locked(call, server)
    check = partial(in_state, action="rescue", states=FROM)
    check(server)
    fields = call.body.rescue or RescueFields()
    password = fields.admin_pass or new_password()
    await service_of(call).rescue(
        call.principal,
        call.token,
        server,
        RescueRequest(fields.rescue_image_ref, password, call.version >= SERVERS_ON_VOLUMES),
        check=check,
        request_id=call.request_id,
    )
    if not call.context.config.enable_instance_password:
        return Response(200, {})
    return Response(200, {"adminPass": password})


async def unrescue(call: AnyCall) -> Response:
    server = await the_server(call, "os_compute_api:os-unrescue")
    not_locked(call, server)
    check = partial(in_state, action="unrescue", states=(VmState.RESCUED,))
    check(server)
    await service_of(call).unrescue(call.principal, server, check=check, request_id=call.request_id)
    return Response(202)


ROUTES = (
    Route("POST", ACTION, rescue, takes=RescueBody, action="rescue"),
    Route("POST", ACTION, unrescue, action="unrescue"),
)
