"""Actions `resize`, `migrate`, `os-migrateLive`, `confirmResize` and `revertResize`."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import msgspec
from msgspec import UNSET, UnsetType
from typing_extensions import override

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_bodies import Fqdn
from moorage.api.compute.server_lookup import in_state, may_cross_cells, not_locked, service_of, target_of, the_server
from moorage.api.routes import Route
from moorage.api.schema import Body, NovaBool
from moorage.api.version_changes import v2_034_servers
from moorage.model.errors import Invalid
from moorage.model.server import Server, VmState
from moorage.operations.live_migrate.accept_live_migrate import LiveWish
from moorage.operations.resize.accept_resize import ResizeWish
from moorage.operations.steps.servers import StateCheck

PATH = "/servers/{id}/action"
RULE = "os_compute_api:servers:"
MIGRATE_LIVE = "os_compute_api:os-migrate-server:migrate_live"
MIGRATE = "os_compute_api:os-migrate-server:migrate"
FROM = (VmState.ACTIVE, VmState.STOPPED)
WAITING = (VmState.RESIZED,)
LIVE = (VmState.ACTIVE, VmState.PAUSED)


class ResizeFields(Body):
    never_null: ClassVar[Mapping[str, str]] = {"OS-DCF:diskConfig": "'string'"}

    flavor_ref: str | int = msgspec.field(name="flavorRef")
    disk_config: Literal["AUTO", "MANUAL"] | None = msgspec.field(name="OS-DCF:diskConfig", default=None)


class ResizeBody(Body):
    resize: ResizeFields


class Destination(Body):
    host: Fqdn | None = None


class MigrateBody(Body):
    migrate: Destination | None


class BoolOrAuto(NovaBool):
    """Or the value `auto`."""

    __slots__ = ("auto",)

    def __init__(self, value: bool, *, auto: bool = False) -> None:
        super().__init__(value)
        self.auto = auto

    @override
    @classmethod
    def of(cls, value: object) -> Self:
        return cls(False, auto=True) if value == "auto" else super().of(value)

    @property
    def wanted(self) -> bool | None:
        """None: `auto`."""
        return None if self.auto else self.value


class LiveDestination(Body):
    """The values of all versions; a version refuses values that it does not know (api/version_changes)."""

    host: Fqdn | None
    block_migration: BoolOrAuto
    disk_over_commit: NovaBool | UnsetType = UNSET
    force: NovaBool | UnsetType = UNSET


class MigrateLiveBody(Body):
    live: LiveDestination = msgspec.field(name="os-migrateLive")


async def resize(call: Call[ResizeBody]) -> Response:
    """Begin a resize. Raises Invalid when the flavor is empty."""
    fields = call.body.resize
    flavor = str(fields.flavor_ref).rsplit("/", 1)[-1]
    if not flavor.strip():
        raise Invalid(f"Invalid input for field/attribute flavorRef. Value: {fields.flavor_ref}. It is no flavor.")
    server = await the_server(call, RULE + "resize")
    wish = ResizeWish(
        flavor=flavor,
        disk_config=fields.disk_config,
        sees_all_flavors=call.is_admin,
        cross_cell=may_cross_cells(call, server),
    )
    return await _move(call, server, wish, _check(call, "resize", FROM))


async def migrate(call: Call[MigrateBody]) -> Response:
    server = await the_server(call, None)
    host = None if call.body.migrate is None else call.body.migrate.host
    call.require(f"{MIGRATE}:host" if host else MIGRATE, target_of(server))
    wish = ResizeWish(host=host or None, cross_cell=may_cross_cells(call, server))
    return await _move(call, server, wish, _check(call, "migrate", FROM))


async def migrate_live(call: Call[MigrateLiveBody]) -> Response:
    """Begin a live migration. Before version 2.34 the request waits for the checks and is refused if they fail; later,
    the migration shows the failure.

    Raises Invalid when a host is forced and not named.
    """
    fields = call.body.live
    server = await the_server(call, None)
    call.require(f"{MIGRATE_LIVE}:host" if fields.host else MIGRATE_LIVE, target_of(server))
    if fields.force is not UNSET and fields.force and not fields.host:
        raise Invalid("Can't force to a non-provided destination")
    check = _check(call, "os-migrateLive", LIVE)
    check(server)
    wish = LiveWish(
        host=fields.host or None,
        block=fields.block_migration.wanted,
        waits=call.version < v2_034_servers.CHECKED_LATER,
        cross_cell=may_cross_cells(call, server),
    )
    await service_of(call).live_migrate(call.principal, server, wish, check=check, request_id=call.request_id)
    return Response(202)


async def _move(call: AnyCall, server: Server, wish: ResizeWish, check: StateCheck) -> Response:
    check(server)
    await service_of(call).resize(call.principal, server, wish, check=check, request_id=call.request_id)
    return Response(202)


async def confirm(call: AnyCall) -> Response:
    server = await the_server(call, RULE + "confirm_resize")
    check = _check(call, "confirmResize", WAITING)
    check(server)
    await service_of(call).confirm_resize(call.principal, server, check=check, request_id=call.request_id)
    return Response(204)


async def revert(call: AnyCall) -> Response:
    server = await the_server(call, RULE + "revert_resize")
    check = _check(call, "revertResize", WAITING)
    check(server)
    await service_of(call).revert_resize(call.principal, server, check=check, request_id=call.request_id)
    return Response(202)


def _check(call: AnyCall, action: str, states: tuple[VmState, ...]) -> StateCheck:
    def check(server: Server) -> None:
        not_locked(call, server)
        in_state(server, action, states)
        if states is WAITING and server.moved is None:  # an administrator has set the state
            raise Invalid("Instance has not been resized.")

    return check


ROUTES = (
    Route("POST", PATH, resize, takes=ResizeBody, action="resize"),
    Route("POST", PATH, migrate, takes=MigrateBody, action="migrate"),
    Route("POST", PATH, migrate_live, takes=MigrateLiveBody, action="os-migrateLive"),
    Route("POST", PATH, confirm, action="confirmResize"),
    Route("POST", PATH, revert, action="revertResize"),
)
