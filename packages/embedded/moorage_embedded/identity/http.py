"""The HTTP endpoint of the identity service: which requests need a token, and which function answers a path."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from typing_extensions import override

from moorage.model.ids import new_uuid
from moorage.model.principal import Principal
from moorage_embedded.http_kit.answers import HttpFault, json_response, title_of
from moorage_embedded.http_kit.endpoint import Endpoint, check_query
from moorage_embedded.http_kit.paging import self_link
from moorage_embedded.http_kit.routing import no_such_path
from moorage_embedded.identity.context import IdentityContext
from moorage_embedded.identity.request import IdentityCall
from moorage_embedded.identity.routes import PUBLIC, TABLE, wrong_method
from moorage_embedded.identity.store import Record

QUERY_MAX_BYTES = 64 * 1024


class IdentityEndpoint(Endpoint):
    """Under `/v3`, and the version documents above it."""

    answers_crashes = True

    def __init__(self, context: IdentityContext) -> None:
        super().__init__(context.validate)
        self._context = context

    @override
    async def answer(self, request: Request) -> Response:
        """Answer a request. Its path is split after it was decoded, as in Keystone. Raises HttpFault, and any Problem."""
        path = str(request.scope["path"])
        if path in {"/", "/v3", "/v3/"}:
            return self._versions(request, path)
        check_query(request, QUERY_MAX_BYTES)
        version, *parts = path.rstrip("/").removeprefix("/").split("/")
        if version != "v3" or "" in parts:
            raise no_such_path()
        if path.endswith("/") and (not parts or TABLE.knows(parts)):
            return RedirectResponse(str(request.url.replace(path=path.rstrip("/"))))
        handler = TABLE.find(request, parts)
        call = request.state.call = IdentityCall(request, self._context)
        if handler not in PUBLIC:
            await self.principal(request)
        return await handler(call)

    @override
    async def identify(self, request: Request) -> Principal:
        call: IdentityCall = request.state.call
        return await call.identify()

    @override
    def refusal(self, request: Request, fault: HttpFault) -> Response:
        body = {"code": fault.status, "message": fault.message, "title": title_of(fault.status)}
        return json_response({"error": body}, fault.status, fault.headers)

    @override
    def finish(self, request: Request, response: Response) -> None:
        if response.status_code < 400 and not hasattr(request.state, "call"):
            return  # a version document or a redirect, which is no call
        response.headers["vary"] = "X-Auth-Token"
        response.headers["x-openstack-request-id"] = f"req-{new_uuid()}"
        if response.status_code == 401:
            response.headers["www-authenticate"] = f'Keystone uri="{self._context.url}"'

    def _versions(self, request: Request, path: str) -> Response:
        if request.method not in {"GET", "HEAD"}:
            raise wrong_method(request.method, ["GET", "HEAD"])
        here = f"{self._context.url}/"
        version: Record = {
            "id": "v3.14",
            "status": "stable",
            "updated": "2020-04-07T00:00:00Z",
            "links": [self_link(here)],
            "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
        }
        if path == "/":
            return json_response({"versions": {"values": [version]}}, 300, {"location": here, "vary": "X-Auth-Token"})
        return json_response({"version": version}, headers={"vary": "X-Auth-Token"})
