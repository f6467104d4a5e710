"""The HTTP endpoint of the image service: which requests need a token, and which function answers a path."""

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override

from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.http_kit.endpoint import Endpoint, ValidateToken, check_query
from moorage_embedded.http_kit.routing import no_such_path, path_parts
from moorage_embedded.image import discovery
from moorage_embedded.image.faults import answer_of, unauthenticated
from moorage_embedded.image.policy import ImageCaller
from moorage_embedded.image.request import ImageCall, ImageContext, request_id
from moorage_embedded.image.routes import TABLE

VERSION_PATHS = frozenset({"v2", *(f"v{number}" for number in discovery.VERSIONS)})
"""Each version of our own list may stand in the path; all are one API."""


class ImageEndpoint(Endpoint):
    def __init__(self, context: ImageContext, validate_token: ValidateToken) -> None:
        super().__init__(validate_token)
        self._context = context

    @override
    async def answer(self, request: Request) -> Response:
        parts = path_parts(request.scope)
        if parts in ((), ("versions",)):
            return discovery.versions(self._context, 200 if parts else 300)
        if parts == ("healthcheck",):
            return Response("OK", media_type="text/plain")
        pairs = check_query(request, self._context.settings.query_max_bytes)
        who = ImageCaller(await self.principal(request))
        if parts[0] not in VERSION_PATHS or (len(parts) > 1 and request.scope["path"].endswith("/")):
            raise no_such_path()
        verb = TABLE.find(request, parts[1:])
        return await verb(ImageCall(self._context, who, request, pairs))

    @override
    def refusal(self, request: Request, fault: HttpFault) -> Response:
        return answer_of(fault, request.headers.get("accept", ""))

    @override
    def unauthenticated(self) -> HttpFault:
        return unauthenticated(self._context.settings.identity_url)

    @override
    def finish(self, request: Request, response: Response) -> None:
        response.headers["x-openstack-request-id"] = request_id(request)
