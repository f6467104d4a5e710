"""`/os-baremetal-nodes`, below 2.36: there is no bare-metal service to ask; what never was passed on is refused as Nova does."""

from collections.abc import Awaitable, Callable

from moorage.api.call import AnyCall, Response
from moorage.api.routes import Params, Route
from moorage.model.errors import Invalid, NotBuilt

RULE = "os_compute_api:os-baremetal-nodes:"
PATH = "/os-baremetal-nodes"
AS_ASKED = Params(strict=None)


def _handler_of(rule: str) -> Callable[[AnyCall], Awaitable[Response]]:
    async def answer(call: AnyCall) -> Response:
        call.require(RULE + rule, {})
        raise NotBuilt("There is no bare-metal service here.")

    return answer


def _command(command: str) -> Callable[[AnyCall], Awaitable[Response]]:
    async def answer(call: AnyCall) -> Response:
        raise Invalid(f"Command not supported. Please use Ironic command {command} to perform this action.")

    return answer


ROUTES = (
    Route("GET", PATH, _handler_of("list"), params=AS_ASKED),
    Route("GET", PATH + "/{id}", _handler_of("show"), params=AS_ASKED),
    Route("POST", PATH, _command("node-create")),
    Route("DELETE", PATH + "/{id}", _command("node-delete")),
    Route("POST", PATH + "/{id}/action", _command("port-create"), action="add_interface"),
    Route("POST", PATH + "/{id}/action", _command("port-delete"), action="remove_interface"),
)
