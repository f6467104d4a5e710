"""An action of servers that Nova has removed: it answers 410 at every version."""

from moorage.api.call import AnyCall, Response
from moorage.api.routes import Route
from moorage.model.errors import Gone

ACTIONS = ("resetNetwork",)


async def gone(call: AnyCall) -> Response:
    """Answer 410 for an action that was removed. Raises Gone."""
    raise Gone("This resource is no longer available.  No forwarding address is given.")


ROUTES = tuple(Route("POST", "/servers/{id}/action", gone, action=name) for name in ACTIONS)
