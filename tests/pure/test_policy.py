"""Policy: Nova's names and defaults, operators' files over them, and the speed it is asked at."""

import time
from pathlib import Path

import pytest

from moorage.api.policy import Policy
from moorage.api.policy_defaults import BASE, RULES
from moorage.model.asker import Asker
from moorage.model.errors import Forbidden, Internal

ADMIN = Asker("a", project="p0", roles=("admin", "manager", "member", "reader"))
MEMBER = Asker("m", project="p1", roles=("member", "reader"))
READER = Asker("r", project="p1", roles=("reader",))
SERVICE = Asker("s", project="p2", roles=("service",))
SYSTEM = Asker("y", system=True, roles=("admin", "reader"))


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
    assert "".join(name for name, asker in askers.items() if policy.allows(asker, rule, target)) == who


def test_system_scope_is_refused() -> None:
    assert not any(Policy().allows(SYSTEM, rule) for rule in RULES)


def test_every_rule_can_be_judged() -> None:
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


def test_asking_again_costs_microseconds() -> None:
    policy = Policy()
    target = {"project_id": "p1", "user_id": "m"}
    policy.allows(MEMBER, "os_compute_api:servers:show", target)
    began = time.process_time()
    for _ in range(10_000):
        policy.allows(MEMBER, "os_compute_api:servers:show", target)
    assert (time.process_time() - began) / 10_000 < 20e-6
