"""The HTTP endpoint of the image service: which requests need a token, and which function answers a path."""

import logging

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override

from moorage.model.errors import Unauthenticated
from moorage.model.image_ticket import HEADER
from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.http_kit.endpoint import Endpoint, ValidateToken, check_query
from moorage_embedded.http_kit.routing import no_such_path, path_parts
from moorage_embedded.image import data, discovery, images
from moorage_embedded.image.faults import answer_of, unauthenticated
from moorage_embedded.image.policy import ImageCaller
from moorage_embedded.image.request import ImageCall, ImageContext, request_id
from moorage_embedded.image.routes import TABLE, Verb

log = logging.getLogger(__name__)
READING = frozenset({images.show, data.download})
FILLING = frozenset({images.show, images.update, data.upload})


def check_ticket(who: ImageCaller, verb: Verb, image: str) -> None:
    """Raises HttpFault (403) for what a ticket does not grant: another image, or another direction."""
    if image != who.only or verb not in (FILLING if who.fills else READING):
        raise HttpFault(403, "The image ticket is not for this.")


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
        who = await self._caller(request)
        if parts[0] not in VERSION_PATHS or (len(parts) > 1 and request.scope["path"].endswith("/")):
            raise no_such_path()
        verb = TABLE.find(request, parts[1:])
        if who.only is not None:
            check_ticket(who, verb, str(request.path_params.get("id", "")))
        return await verb(ImageCall(self._context, who, request, pairs))

    async def _caller(self, request: Request) -> ImageCaller:
        """Who calls, by a token or a host's ticket."""
        text = request.headers.get(HEADER)
        if text is None or self._context.settings.tickets is None:
            return ImageCaller(await self.principal(request))
        try:
            return ImageCaller.of_ticket(self._context.settings.tickets.granted(text))
        except Unauthenticated as invalid:
            log.warning("an image ticket is refused: %s %s", invalid.public, invalid.private)
            raise HttpFault(401, invalid.public) from None

    @override
    def refusal(self, request: Request, fault: HttpFault) -> Response:
        return answer_of(fault, request.headers.get("accept", ""))

    @override
    def unauthenticated(self) -> HttpFault:
        return unauthenticated(self._context.settings.identity_url)

    @override
    def finish(self, request: Request, response: Response) -> None:
        response.headers["x-openstack-request-id"] = request_id(request)
