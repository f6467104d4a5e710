"""Which calls access rules allow, as Keystone's middleware reads their paths."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.model.access_rules import AccessRule, permits
from moorage.model.errors import Unauthenticated
from moorage.model.principal import Principal

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
    ("/a/**/b", "/a/x/y/b", True),
    ("/a/**/b", "/a//b", True),
    ("/a/**/b", "/a/b", False),
    ("/a/****/b", "/a/x/b", True),
    ("/a/***", "/a/x", True),
    ("/a/x*y", "/a/x12y", True),
    ("/a/x*y", "/a/xy", False),
    ("/a/{}/b", "/a/1/b", True),
    ("/a/{x", "/a/{x", True),
    ("/*/*", "/a/b/c", False),
    ("/**/{id}/**", "/v2.1/servers/1/ips", True),
]


@pytest.mark.parametrize(("rule", "path", "allowed"), PATHS)
def test_paths(rule: str, path: str, allowed: bool) -> None:
    assert permits([AccessRule("compute", "GET", rule)], "compute", "GET", path) is allowed
    assert not permits([AccessRule("compute", "GET", rule)], "compute", "POST", path)
    assert not permits([AccessRule("compute", "GET", rule)], "image", "GET", path)


TOKENS = st.lists(st.sampled_from(["**", "*", "{id}", "a", "b", "/", ".", "{", "***"]), max_size=8).map("".join)


@settings(max_examples=500, deadline=None)
@given(TOKENS, st.text(alphabet="ab/.{", max_size=12))
def test_a_path_pattern_matches_as_its_regular_expression(rule: str, path: str) -> None:
    parts = []
    for part in re.split(r"(\*\*|\*|\{[^{}/]*\})", rule):
        one = part == "*" or (part.startswith("{") and part.endswith("}"))
        parts.append(".*" if part == "**" else "[^/]+" if one else re.escape(part))
    said = re.fullmatch("".join(parts), path) is not None
    assert permits([AccessRule("compute", "GET", rule)], "compute", "GET", path) is said


def test_no_rule_causes_long_matching() -> None:
    """As a regular expression this one would take years."""
    rule = AccessRule("compute", "GET", "/" + "**a" * 70 + "c")
    assert not permits([rule], "compute", "GET", "/" + "a" * 8_000 + "b")


def test_which_service_a_rule_applies_to() -> None:
    rules = (AccessRule("compute", "GET", "/v2.1/servers"),)
    Principal("u").require_call("compute", "DELETE", "/v2.1/servers/1")
    bound = Principal("u", access_rules=rules)
    bound.require_call("compute", "GET", "/v2.1/servers")
    for each in (bound, Principal("u", access_rules=())):
        with pytest.raises(Unauthenticated):
            each.require_call("compute", "GET", "/v2.1/flavors")
    Principal("u", access_rules=(), service_roles=("service",)).require_call("compute", "GET", "/v2.1/flavors")
