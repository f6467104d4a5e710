"""Which calls access rules allow, as Keystone's middleware reads their paths."""

import pytest

from moorage.model.access_rules import AccessRule, permits
from moorage.model.asker import Asker
from moorage.model.errors import Unauthenticated

PATHS = [
    ("/v2.1/servers", "/v2.1/servers", True),
    ("/v2.1/servers", "/v2.1/servers/1", False),
    ("/v2.1/servers/*", "/v2.1/servers/1", True),
    ("/v2.1/servers/*", "/v2.1/servers/1/action", False),
    ("/v2.1/servers/**", "/v2.1/servers/1/action", True),
    ("/v2.1/servers/{server_id}/ips", "/v2.1/servers/1/ips", True),
    ("/v2.1/servers/{server_id}/ips", "/v2.1/servers/1/2/ips", False),
    ("/v2.1/*", "/v2.1/", False),
    ("/v2.1/(a|b)", "/v2.1/a", False),
    ("**", "/anything/at/all", True),
]


@pytest.mark.parametrize(("rule", "path", "allowed"), PATHS)
def test_paths(rule: str, path: str, allowed: bool) -> None:
    assert permits([AccessRule("compute", "GET", rule)], "compute", "GET", path) is allowed
    assert not permits([AccessRule("compute", "GET", rule)], "compute", "POST", path)
    assert not permits([AccessRule("compute", "GET", rule)], "image", "GET", path)


def test_who_is_asked() -> None:
    rules = (AccessRule("compute", "GET", "/v2.1/servers"),)
    Asker("u").require_call("compute", "DELETE", "/v2.1/servers/1")
    bound = Asker("u", access_rules=rules)
    bound.require_call("compute", "GET", "/v2.1/servers")
    for each in (bound, Asker("u", access_rules=())):
        with pytest.raises(Unauthenticated):
            each.require_call("compute", "GET", "/v2.1/flavors")
    Asker("u", access_rules=(), service_roles=("service",)).require_call("compute", "GET", "/v2.1/flavors")
