"""Every path under `/v3` and its handlers."""

from collections.abc import Mapping

from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.http_kit.routing import RouteTable
from moorage_embedded.identity import (
    access_rules,
    auth_routes,
    credentials,
    domain_config,
    ec2,
    endpoint_filter,
    federation,
    resources,
    role_assignments,
    signed_logins,
    trusts,
    users,
)
from moorage_embedded.identity.request import Handler, Routes

ROUTES: Routes = {
    **auth_routes.ROUTES,
    **role_assignments.ROUTES,
    **signed_logins.ROUTES,
    **access_rules.ROUTES,
    **credentials.ROUTES,
    **domain_config.ROUTES,
    **ec2.ROUTES,
    **endpoint_filter.ROUTES,
    **federation.ROUTES,
    **users.ROUTES,
    **resources.ROUTES,
    **trusts.ROUTES,
}
PUBLIC = {auth_routes.issue, users.change_password}
"""What needs no token."""


def wrong_method(method: str, allowed: list[str]) -> HttpFault:
    return HttpFault(405, "Method Not Allowed")


def _with_head(handlers: Mapping[str, Handler]) -> Mapping[str, Handler]:
    return {"HEAD": handlers["GET"], **handlers} if "GET" in handlers else handlers


TABLE = RouteTable("identity", "/v3", {path: _with_head(each) for path, each in ROUTES.items()}, wrong_method)
