"""The HTTP endpoint of the network service: a route is found, its function runs in a transaction, its result is the answer."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override

from moorage.sql import Database, Tx
from moorage_embedded.http_kit import answers
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.http_kit.bodies import JsonBody
from moorage_embedded.http_kit.endpoint import Endpoint, ValidateToken, check_query
from moorage_embedded.http_kit.paging import self_link
from moorage_embedded.http_kit.routing import no_such_path, path_parts
from moorage_embedded.network import port_descriptions
from moorage_embedded.network.faults import NeutronFault, error_body
from moorage_embedded.network.guarantees import (
    CLAIM_TRIES_MAX,
    ChangeGuarantees,
    ClaimsWanted,
    GuaranteeChange,
    not_here,
    too_much,
)
from moorage_embedded.network.outbox import ComputeOutbox
from moorage_embedded.network.policy import NetworkCaller
from moorage_embedded.network.request import NetworkCall, NetworkRequest, NetworkSettings
from moorage_embedded.network.routes import TABLE
from moorage_embedded.network.store import NetworkStore

T = TypeVar("T")
BODY_MAX_BYTES = 1024 * 1024
QUERY_MAX_BYTES = 64 * 1024
BODY = JsonBody(
    too_large="The body is larger than {limit} bytes.",
    malformed="Malformed request body: it is not JSON.",
    nul="Body contains invalid data: a NUL character",
    not_an_object="Body contains invalid data",
)


class Runner:
    """Runs verbs in transactions, and hands what they say of others to the outbox afterwards."""

    def __init__(
        self,
        database: Database,
        settings: NetworkSettings,
        outbox: ComputeOutbox,
        guarantees: ChangeGuarantees | None = None,
    ) -> None:
        self._database = database
        self.settings = settings
        self._outbox = outbox
        self._guarantees = guarantees
        self.written = 0
        """Transactions that were committed."""
        self._wrote = asyncio.Event()

    async def write(self, who: NetworkCaller, work: Callable[[NetworkCall], T]) -> T:
        """Run one transaction; its changes of claimed guarantees are made in placement before the commit.

        Raises NeutronFault (503) when guarantees keep changing, 409 when they cannot be served.
        """
        taken: tuple[GuaranteeChange, ...] = ()
        for _ in range(CLAIM_TRIES_MAX):
            try:
                return await self._write(who, work, taken)
            except ClaimsWanted as wanted:  # for the first time, or somebody changed something since
                await self._give_back(taken)
                taken = ()
                if self._guarantees is None:
                    raise not_here(wanted.changes) from None
                if not await self._guarantees(wanted.changes, False):
                    raise too_much(wanted.changes) from None
                taken = wanted.changes
            except NeutronFault:  # whatever else goes wrong, nobody knows what was committed
                await self._give_back(taken)
                raise
        await self._give_back(taken)
        raise NeutronFault(503, "ServiceUnavailable", "what is guaranteed keeps changing; try again later")

    async def _give_back(self, taken: Sequence[GuaranteeChange]) -> None:
        if taken and self._guarantees is not None:
            await self._guarantees([each.taken_back() for each in reversed(taken)], True)

    async def _write(
        self, who: NetworkCaller, work: Callable[[NetworkCall], T], taken: tuple[GuaranteeChange, ...]
    ) -> T:
        calls: list[NetworkCall] = []

        def transaction(tx: Tx) -> T:
            call = NetworkCall(NetworkStore(tx), who, self.settings)
            calls[:] = [call]  # a deadlock runs us again
            answer = work(call)
            if (wanted := tuple(call.claims.values())) and wanted != taken:
                raise ClaimsWanted(wanted)
            return answer

        answer = await self._database.write(transaction)
        self.written += 1
        self._wrote.set()
        self._wrote = asyncio.Event()
        if taken and not calls[0].claims:
            await self._give_back(taken)  # somebody else changed it, and nothing was left to change
        self._outbox.put(calls[0].events, calls[0].segments)
        return answer

    async def until_written(self, since: int) -> None:
        """Until there is another number of transactions than this one."""
        while self.written == since:
            await self._wrote.wait()

    async def read(self, who: NetworkCaller, work: Callable[[NetworkCall], T]) -> T:
        return await self._database.read(lambda tx: work(NetworkCall(NetworkStore(tx), who, self.settings)))


class NetworkEndpoint(Endpoint):
    """Under `/v2.0`, and the version documents above it."""

    def __init__(self, runner: Runner, public_url: str, validate_token: ValidateToken) -> None:
        super().__init__(validate_token)
        self._runner = runner
        self._public = public_url.rstrip("/")
        self.descriptions = port_descriptions.Descriptions()

    @override
    async def answer(self, request: Request) -> Response:
        """Answer a request. Raises HttpFault (404) for another version than v2.0."""
        path = str(request.scope["path"])
        parts = path_parts(request.scope)
        if parts:
            parts = (*parts[:-1], parts[-1].removesuffix(".json"))
        if not parts:
            links = [self_link(f"{self._public}/v2.0/")]
            return json_response({"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]})
        if parts[0] != "v2.0":
            raise no_such_path()
        if len(parts) == 1:
            return json_response(self._resources())
        who = NetworkCaller(await self.principal(request))
        if parts[1:] == port_descriptions.PATH and request.method == "GET":
            asked = port_descriptions.query_of(check_query(request, QUERY_MAX_BYTES))
            if asked.host:
                return json_response(await self.descriptions.newer(self._runner, who, asked.host, asked.after))
            return json_response(await self.descriptions.changed(self._runner, who, asked.after, asked.wait_s))
        route = TABLE.find(request, parts[1:])
        ask = NetworkRequest(
            request.path_params,
            check_query(request, QUERY_MAX_BYTES),
            await BODY.read(request, BODY_MAX_BYTES) if route.has_body else None,
            request.headers.get("if-match"),
            f"{self._public}{path}",
        )
        run = self._runner.write if route.writes else self._runner.read
        answer = await run(who, lambda call: route.verb(call, ask))
        return json_response(answer, route.status) if answer is not None else empty_response()

    @override
    def refusal(self, request: Request, fault: answers.HttpFault) -> Response:
        return json_response(error_body(fault), fault.status, fault.headers)

    def _resources(self) -> Any:
        return {
            "resources": [
                {
                    "name": name,
                    "collection": f"{name}s",
                    "links": [self_link(f"{self._public}/v2.0/{name}s")],
                }
                for name in ("subnet", "subnetpool", "network", "port")
            ]
        }
