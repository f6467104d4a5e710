"""One request to the identity service: the caller, its body, and answers in Keystone's form.

Permissions follow Keystone's defaults: the role admin, on any scope, may do everything; a reader of the system may read
everything; a reader or manager of a domain may read or write what belongs to the domain; every user may read their own
data.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias, cast

from starlette.requests import Request
from starlette.responses import Response

from moorage.model.access_rules import AccessRule, permits
from moorage.model.errors import Forbidden, Invalid
from moorage.model.principal import Principal
from moorage.model.task_context import record_caller
from moorage_embedded.http_kit.answers import json_response
from moorage_embedded.http_kit.bodies import JsonBody
from moorage_embedded.identity.context import IdentityContext, principal_of
from moorage_embedded.identity.effective_roles import EffectiveRoles, refused
from moorage_embedded.identity.schemas import ResourceSchema, shown
from moorage_embedded.identity.store import LIST_MAX, Record
from moorage_embedded.identity.tokens import PRIMARY, SIGNED, Claims

BODY_MAX_BYTES = 112 * 1024
DIGITS_MAX = 18
"""Of a number; none of ours has so many."""
INSIDE = "inside"
"""What a client in this process says of its address (`clients.inside`)."""
BODY = JsonBody(
    too_large="Request is too large: a body has at most {limit} bytes.",
    malformed="The request body is not valid JSON.",
    empty="The request body is not valid JSON.",
    not_an_object="The request body must be a JSON object.",
)


class IdentityCall:
    """One request whose token, if it needs one, has been checked."""

    def __init__(self, request: Request, context: IdentityContext) -> None:
        self.request = request
        self.context = context
        self._claims: Claims | None = None
        self._standing: EffectiveRoles | None = None
        self._roles: frozenset[str] = frozenset()

    async def identify(self) -> Principal:
        """Who calls, by the token. Raises Unauthenticated, also for a token that may not make this call."""
        self._claims = await self.context.claims(self.request.headers.get("x-auth-token", ""))
        self._standing = await self.context.standing(self._claims)
        self._roles = frozenset(name.lower() for _, name in self._standing.roles)
        principal = principal_of(self._claims, self._standing)
        record_caller(principal)
        if self._standing.access_rules is not None:
            rules = [AccessRule(each["service"], each["method"], each["path"]) for each in self._standing.access_rules]
            if not permits(rules, "identity", self.request.method, self.request.url.path):
                raise refused()
        return principal

    @property
    def claims(self) -> Claims:
        assert self._claims is not None, "this route does not ask who calls"
        return self._claims

    @property
    def standing(self) -> EffectiveRoles:
        assert self._standing is not None, "this route does not ask who calls"
        return self._standing

    @property
    def user_id(self) -> str:
        return self.claims.user

    @property
    def address(self) -> str | None:
        """From where it is asked, as a trusted proxy says if there is one; None: from inside this process."""
        client = self.request.client
        return None if client is None or client.host == INSIDE else client.host

    @property
    def domain_scope(self) -> str | None:
        return self.claims.scope_id if self.claims.scope == "domain" else None

    def has(self, role: str) -> bool:
        return role in self._roles

    def may_read(self, domain_id: str | None = None) -> bool:
        if self.has("admin") or (self.has("reader") and self.claims.scope == "system"):
            return True
        return bool(domain_id) and self.has("reader") and self.domain_scope == domain_id

    def may_write(self, domain_id: str | None = None) -> bool:
        return self.has("admin") or (bool(domain_id) and self.has("manager") and self.domain_scope == domain_id)

    def require(self, allowed: bool, action: str = "") -> None:
        """Raises Forbidden; `action` is the name of the rule that does not allow it."""
        if not allowed:
            rule = f": identity:{action}" if action else ""
            raise Forbidden(f"You are not authorized to perform the requested action{rule}.")

    @property
    def lends_nothing(self) -> bool:
        """Whether the token is its user's own, and of no trust, application credential or EC2 credential."""
        return not self.claims.trust and PRIMARY.issuperset(self.claims.methods)

    def require_credentials(self) -> None:
        """Raises Forbidden: whoever acts for a user, within limits, gets at none of the user's secrets."""
        if not self.lends_nothing:
            raise Forbidden(
                "You are not authorized to perform the requested action: Delegated tokens cannot access credentials"
                " directly."
            )

    def require_application_credentials(self) -> None:
        """Raises Forbidden for a trust or an EC2 credential: an application credential would outlive it."""
        if self.claims.trust or SIGNED in self.claims.methods:
            raise Forbidden("Cannot manage application credentials with a token issued via delegation.")

    def require_unrestricted(self) -> None:
        """Raises Forbidden: an application credential makes and deletes none, unless it may make others of its kind; nor
        does a trust.
        """
        self.require_application_credentials()
        self.require(
            not self.claims.application_credential or bool((self.standing.credential or {}).get("unrestricted"))
        )

    def require_own_session(self) -> None:
        """Raises Forbidden: an application credential or EC2 credential has nothing to do with trusts."""
        if not PRIMARY.issuperset(self.claims.methods):
            raise Forbidden(
                "You are not authorized to perform the requested action: Delegated tokens cannot manage trusts."
            )

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def query(self, name: str) -> str | None:
        return self.request.query_params.get(name)

    def asks(self, name: str) -> bool:
        """A flag of the query: there and not false, as Keystone reads it."""
        value = self.query(name)
        return value is not None and value.lower() not in {"0", "false", "no", "off"}

    async def body(self, key: str) -> Record:
        """The object under `key`; raises Invalid when it is not there, and HttpFault as `document` does."""
        whole = await self.document()
        found = whole.get(key)
        if not isinstance(found, dict):
            raise Invalid(f"'{key}' is a required property and must be an object.")
        return cast("Record", found)

    async def document(self) -> Record:
        """The whole body. Raises HttpFault when it is too long or no JSON object."""
        return cast("Record", await BODY.read(self.request, BODY_MAX_BYTES))


Handler: TypeAlias = Callable[[IdentityCall], Awaitable[Response]]
Routes: TypeAlias = Mapping[str, Mapping[str, Handler]]
"""Path template below `/v3` → method → handler."""


def listing(call: IdentityCall, name: str, rows: list[Record]) -> Response:
    """A collection; Keystone has no pages here, so `limit` and our own limit cut it, and say so."""
    asked = call.query("limit")
    digits = asked if asked is not None and asked.isascii() and asked.isdigit() else ""
    limit = min(int(digits[:DIGITS_MAX]) or LIST_MAX, LIST_MAX) if digits else LIST_MAX
    path = call.request.url.path
    here = call.context.url + path[path.index("/v3") + 3 :]
    query = f"?{call.request.url.query}" if call.request.url.query else ""
    content: Record = {name: rows[:limit], "links": {"self": here + query, "previous": None, "next": None}}
    if len(rows) > limit:
        content["truncated"] = True
    return json_response(content)


def listed(call: IdentityCall, noun: ResourceSchema, rows: Iterable[Record]) -> Response:
    return listing(call, noun.many, [shown(noun, row, call.context.url) for row in rows])
