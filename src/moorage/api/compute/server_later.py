"""Parts of servers that a later room brings: after the usual checks they answer 501 (docs/api.md lists them)."""

from collections.abc import Awaitable, Callable
from typing import Any

from moorage.api.call import Call, Reply
from moorage.api.compute.server_access import the_server
from moorage.api.routes import Params, Route
from moorage.model.errors import Gone, NotBuilt

AS_ASKED = Params(strict=None)
GONE_ACTIONS = ("resetNetwork", "os-getRDPConsole")
PARTS = {
    ("GET", "/servers/{id}/shares"): "os_compute_api:os-server-shares:index",
    ("POST", "/servers/{id}/shares"): "os_compute_api:os-server-shares:create",
    ("GET", "/servers/{id}/shares/{share}"): "os_compute_api:os-server-shares:show",
    ("DELETE", "/servers/{id}/shares/{share}"): "os_compute_api:os-server-shares:delete",
}


def later(what: str, rule: str) -> Callable[[Call[Any]], Awaitable[Reply]]:
    async def answer(call: Call[Any]) -> Reply:
        await the_server(call, rule)
        raise NotBuilt(f"'{what}' is not built yet.")

    return answer


async def gone(call: Call[Any]) -> Reply:
    raise Gone("This resource is no longer available.  No forwarding address is given.")


ROUTES = (
    *(Route("POST", "/servers/{id}/action", gone, action=name) for name in GONE_ACTIONS),
    *(Route(method, path, later(f"{method} {path}", rule), params=AS_ASKED) for (method, path), rule in PARTS.items()),
)
