"""The HTTP endpoint of the volume service: microversions, the project in the path, and which function answers a path."""

import re

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override

from moorage.model.ids import new_uuid
from moorage.model.principal import Principal
from moorage_embedded.http_kit.answers import HttpFault, json_response
from moorage_embedded.http_kit.endpoint import Endpoint, ValidateToken, check_query
from moorage_embedded.http_kit.routing import no_such_path, path_parts
from moorage_embedded.volume import versions
from moorage_embedded.volume.faults import answer_of, bad
from moorage_embedded.volume.policy import VolumeCaller
from moorage_embedded.volume.request import VolumeCall, VolumeContext
from moorage_embedded.volume.routes import TABLE

_PROJECT = re.compile(r"[0-9a-f-]+")


class VolumeEndpoint(Endpoint):
    """Under `/v3` and `/v3/{project}`, and the version documents above it."""

    def __init__(self, context: VolumeContext, validate_token: ValidateToken) -> None:
        super().__init__(validate_token)
        self._context = context

    @override
    async def answer(self, request: Request) -> Response:
        request.state.id = id = f"req-{new_uuid()}"
        request.state.version = version = versions.requested_version(request.headers.get(versions.HEADER))
        parts = path_parts(request.scope)
        if parts in ((), ("v3",)):
            return json_response(versions.document(self._context.public_url), 200 if parts else 300)
        if parts == ("healthcheck",):
            return Response("OK", media_type="text/plain")
        if parts[0] != "v3" or request.scope["path"].endswith("/"):  # an id that is empty is no list
            raise no_such_path()
        pairs = check_query(request, self._context.settings.query_max_bytes)
        principal = await self.principal(request)
        who = VolumeCaller(principal)
        rest, prefix = parts[1:], "/v3"
        if rest[0] not in TABLE.first_parts and _PROJECT.fullmatch(rest[0]):
            if rest[0] != who.project:
                raise bad("Malformed request url")
            rest, prefix = rest[1:], f"/v3/{rest[0]}"
        if not rest:
            raise no_such_path()
        rest = (*rest[:-1], rest[-1].removesuffix(".json"))
        verb = TABLE.find(request, rest)
        return await verb(VolumeCall(self._context, who, principal, request, rest, prefix, pairs, version, id))

    @override
    async def identify(self, request: Request) -> Principal:
        """With the roles of the service token, where there is one."""
        principal = await super().identify(request)
        service = request.headers.get("x-service-token")
        if service and not principal.service_roles:
            return replace(principal, service_roles=(await self._validate(service)).roles)
        return principal

    @override
    def refusal(self, request: Request, fault: HttpFault) -> Response:
        return answer_of(fault)

    @override
    def finish(self, request: Request, response: Response) -> None:
        if (version := getattr(request.state, "version", None)) is not None:
            response.headers[versions.HEADER] = f"volume 3.{version}"
            response.headers["Vary"] = versions.HEADER
        response.headers["x-openstack-request-id"] = response.headers["x-compute-request-id"] = request.state.id
