"""Actions `resize`, `migrate`, `confirmResize` and `revertResize`."""

from typing import Any, Literal

import msgspec

from moorage.api.call import Call, Reply
from moorage.api.compute.server_access import doors, in_state, not_locked, target_of, the_server
from moorage.api.compute.server_bodies import Fqdn
from moorage.api.routes import Route
from moorage.api.wire import Body
from moorage.model.errors import Invalid
from moorage.model.server import Server, VmState
from moorage.operations.resize_request import ResizeWish
from moorage.operations.steps.servers import StateCheck

PATH = "/servers/{id}/action"
RULE = "os_compute_api:servers:"
MIGRATE = "os_compute_api:os-migrate-server:migrate"
FROM = (VmState.ACTIVE, VmState.STOPPED)
WAITING = (VmState.RESIZED,)


class Wanted(Body):
    flavor_ref: str | int = msgspec.field(name="flavorRef")
    disk_config: Literal["AUTO", "MANUAL"] | None = msgspec.field(name="OS-DCF:diskConfig", default=None)


class ResizeBody(Body):
    resize: Wanted


class Destination(Body):
    host: Fqdn | None = None


class MigrateBody(Body):
    migrate: Destination | None


async def resize(call: Call[ResizeBody]) -> Reply:
    asked = call.body.resize
    flavor = str(asked.flavor_ref).rsplit("/", 1)[-1]
    if not flavor.strip():
        raise Invalid(f"Invalid input for field/attribute flavorRef. Value: {asked.flavor_ref}. It is no flavor.")
    server = await the_server(call, RULE + "resize")
    wish = ResizeWish(flavor=flavor, disk_config=asked.disk_config, sees_all_flavors=call.is_admin)
    return await _move(call, server, wish, _check(call, "resize", FROM))


async def migrate(call: Call[MigrateBody]) -> Reply:
    server = await the_server(call, None)
    host = None if call.body.migrate is None else call.body.migrate.host
    call.require(f"{MIGRATE}:host" if host else MIGRATE, target_of(server))
    return await _move(call, server, ResizeWish(host=host or None), _check(call, "migrate", FROM))


async def _move(call: Call[Any], server: Server, wish: ResizeWish, check: StateCheck) -> Reply:
    check(server)
    await doors(call).resize(call.asker, server, wish, check=check, request_id=call.request_id)
    return Reply(202)


async def confirm(call: Call[Any]) -> Reply:
    server = await the_server(call, RULE + "confirm_resize")
    check = _check(call, "confirmResize", WAITING)
    check(server)
    await doors(call).confirm_resize(call.asker, server, check=check, request_id=call.request_id)
    return Reply(204)


async def revert(call: Call[Any]) -> Reply:
    server = await the_server(call, RULE + "revert_resize")
    check = _check(call, "revertResize", WAITING)
    check(server)
    await doors(call).revert_resize(call.asker, server, check=check, request_id=call.request_id)
    return Reply(202)


def _check(call: Call[Any], action: str, states: tuple[VmState, ...]) -> StateCheck:
    def check(server: Server) -> None:
        not_locked(call, server)
        in_state(server, action, states)
        if states is WAITING and server.moved is None:  # an administrator has set the state
            raise Invalid("Instance has not been resized.")

    return check


ROUTES = (
    Route("POST", PATH, resize, takes=ResizeBody, action="resize"),
    Route("POST", PATH, migrate, takes=MigrateBody, action="migrate"),
    Route("POST", PATH, confirm, action="confirmResize"),
    Route("POST", PATH, revert, action="revertResize"),
)
