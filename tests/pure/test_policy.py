"""Policy: Nova's and Placement's names, defaults and scopes, operators' files over them, and the speed of a check.

`tests/golden/access` has the facts as Nova's and Placement's own policies state them; a rule that differs is a fault here.
"""

import time
from pathlib import Path

import pytest

from moorage.api.placement.policy import PlacementPolicy
from moorage.api.policy import Policy
from moorage.api.policy_defaults import BASE, RULES
from moorage.main.placement_role import refuse_strangers
from moorage.model.errors import Forbidden, Internal, Invalid
from moorage.model.principal import Principal

ADMIN = Principal("a", project="p0", roles=("admin", "manager", "member", "reader"))
MEMBER = Principal("m", project="p1", roles=("member", "reader"))
READER = Principal("r", project="p1", roles=("reader",))
SERVICE = Principal("s", project="p2", roles=("service",))
SYSTEM = Principal("y", system=True, roles=("admin", "reader"))
DOMAIN = Principal("d", domain="default", roles=("admin", "manager", "member", "reader", "service"))
NOWHERE = Principal("n", roles=("manager", "member", "reader"))
FACTS = Path(__file__).parent.parent / "golden" / "access"


def facts(name: str) -> dict[str, tuple[str, str]]:
    """Rule → its check and its scope types."""
    rows = (line.split("\t") for line in (FACTS / name).read_text().splitlines() if not line.startswith("#"))
    return {rule: (check, scopes) for rule, check, scopes, _ in rows}


def bare(check: str) -> str:
    return check.replace("(", "").replace(")", "")


@pytest.mark.parametrize(
    ("rule", "target", "who"),
    [
        ("os_compute_api:servers:create", None, "AM"),
        ("os_compute_api:servers:show", None, "AMR"),
        ("os_compute_api:servers:show", {"project_id": "p1"}, "AMR"),
        ("os_compute_api:servers:show", {"project_id": "p9"}, "A"),
        ("os_compute_api:os-services:list", {}, "A"),
        ("os_compute_api:os-server-external-events:create", {}, "AS"),
        ("os_compute_api:os-keypairs:show", {"user_id": "m"}, "AM"),
        ("os_compute_api:limits", {}, "AMRS"),
        ("compute:servers:resize:cross_cell", {}, ""),
    ],
)
def test_defaults(rule: str, target: dict[str, str] | None, who: str) -> None:
    policy = Policy()
    askers = {"A": ADMIN, "M": MEMBER, "R": READER, "S": SERVICE}
    assert "".join(name for name, principal in askers.items() if policy.allows(principal, rule, target)) == who


def test_rules_are_novas() -> None:
    known, ours = facts("nova_policies.tsv"), {**BASE, **{name: check for name, (check, _) in RULES.items()}}
    assert {name: bare(check) for name, (check, _) in known.items()} == {
        name: bare(check) for name, check in ours.items() if not name.startswith("moorage:")
    }
    assert {name for name, (_, scopes) in known.items() if scopes == "project"} == RULES.keys() & known.keys()


def test_rules_are_placements() -> None:
    known = facts("placement_policies.tsv")
    assert {name for name in known if ":" in name} == {name for name in PlacementPolicy().rules if ":" in name}
    assert all(scopes == "project" for name, (_, scopes) in known.items() if ":" in name)


@pytest.mark.parametrize("principal", [SYSTEM, DOMAIN], ids=["system", "domain"])
def test_tokens_beyond_projects_are_refused(principal: Principal) -> None:
    """Whatever they are administrators of, and whatever the target is."""
    for target in (None, {}, {"project_id": None, "user_id": principal.user}, {"project_id": "p1"}):
        assert not any(Policy().allows(principal, rule, target) for rule in (*RULES, "context_is_admin"))
        placement = PlacementPolicy()
        assert not any(placement.allows(principal, rule, target or {}) for rule in placement.rules)


def test_no_project_is_nobodys_project() -> None:
    """A token without a project, and a target without one: `project_id:%(project_id)s` does not match."""
    for target in (None, {"project_id": None}, {"project_id": None, "user_id": "n"}, {"project_id": "None"}):
        assert not Policy().allows(NOWHERE, "os_compute_api:servers:show", target)
    for nobody in (None, "None"):
        assert not PlacementPolicy().allows(NOWHERE, "placement:usages", {"project_id": nobody})


def test_every_rule_can_be_evaluated() -> None:
    policy = Policy()
    for rule in (*RULES, *BASE):
        policy.allows(MEMBER, rule)
    with pytest.raises(Internal):
        policy.allows(MEMBER, "os_compute_api:wings")


@pytest.mark.parametrize(
    ("name", "text"), [("p.yaml", '"{rule}": "role:reader"'), ("p.json", '{{"{rule}": "role:reader"}}')]
)
def test_operators_files(tmp_path: Path, name: str, text: str) -> None:
    rule = "os_compute_api:os-services:list"
    (tmp_path / name).write_text(text.format(rule=rule))
    policy = Policy.of_file(str(tmp_path / name))
    assert policy.allows(READER, rule, {})
    listed = {each.name: each for each in policy.listed()}
    assert (listed[rule].check, listed[rule].default) == ("role:reader", "rule:context_is_admin")
    assert listed[rule].operations == ("GET /os-services",)
    with pytest.raises(Internal):
        Policy.of_file(str(tmp_path / "none"))


def test_a_refusal_names_the_rule() -> None:
    with pytest.raises(Forbidden, match=r"^Policy doesn't allow os_compute_api:os-services:list to be performed\.$"):
        Policy().require(MEMBER, "os_compute_api:os-services:list", {})


def test_repeated_checks_cost_microseconds() -> None:
    policy = Policy()
    target = {"project_id": "p1", "user_id": "m"}
    policy.allows(MEMBER, "os_compute_api:servers:show", target)
    began = time.process_time()
    for _ in range(10_000):
        policy.allows(MEMBER, "os_compute_api:servers:show", target)
    assert (time.process_time() - began) / 10_000 < 20e-6


WRONG = {
    '"os_compute_api:server:delete": "role:admin"': "there is no rule os_compute_api:server:delete; is os_compute_api:servers:delete meant",
    '"os_compute_api:servers:delete": "role:admin and ("': "cannot be understood: role:admin and",
    '"os_compute_api:servers:delete": "bogus"': "cannot be understood: bogus",
    '"os_compute_api:servers:delete": "rule:nosuch"': "names a rule that there is not: nosuch",
    '"os_compute_api:servers:delete": "role:admin or not (rule:nosuch)"': "names a rule that there is not: nosuch",
    '"os_compute_api:servers:delete": null': "is no text",
    '"os_compute_api:servers:delete": []': "is no text",
    '"os_compute_api:servers:delete": false': "is no text",
    "hello": "is no list of rules",
    "- a": "is no list of rules",
    '"a": "b\n c: [': "cannot be read",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_an_error_in_a_policy_file_is_reported(tmp_path: Path, text: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises(Internal, match=WRONG[text]):
        Policy.of_file(str(file))
    file.write_text(
        text.replace("os_compute_api:servers:delete", "placement:traits:list").replace("os_compute_api", "placement")
    )
    with pytest.raises(Invalid):
        PlacementPolicy.of_file(str(file))


def test_rules_of_an_operator_replace_the_defaults(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, delete = tmp_path / "p.yaml", "os_compute_api:servers:delete"
    file.write_text(
        f'"operators": "role:operator"\n"{delete}": "rule:operators and not role:reader"\n"admin_or_ownr": "@"\n"placement:traits:list": "!"'
    )
    policy = Policy.of_file(str(file))
    assert policy.allows(Principal("o", project="p1", roles=("operator",)), delete)
    assert not policy.allows(ADMIN, delete)
    assert "the rule admin_or_ownr is neither one of ours nor named by another" in caplog.text
    for text, who in (('""', True), ('"!"', False), ('"@"', True)):
        file.write_text(f'"{delete}": {text}')
        assert Policy.of_file(str(file)).allows(READER, delete) is who


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "", "example.org"])
def test_unvalidated_tokens_are_accepted_on_a_loopback_address_only(host: str) -> None:
    for near in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        refuse_strangers(near)
    with pytest.raises(Invalid, match="a loopback address"):
        refuse_strangers(host)
