"""The access matrix: personas, and the policies of Nova and Placement for them.

A line of `tests/golden/access/compute.txt` is a route, the checks that Nova makes there, and one column for each persona.
The columns come of the checks and of the facts (`*_policies.tsv`), judged by oslo.policy's own enforcer with scopes: never
of what we answer.  A check is `TARGET:RULE`, and TARGET says whose the thing is that the rule is asked about.

`MOORAGE_BLESS=1 pytest tests/api -k access_golden` works the columns out anew; a route without a line is added as `?`, which
no test takes: write its checks, from Nova's policy reference, and bless again.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from oslo_config import cfg
from oslo_policy import opts, policy

from moorage.api.policy_defaults import RULES
from moorage.model.access_rules import AccessRule
from moorage.model.principal import Principal

FACTS = Path(__file__).parent.parent / "golden" / "access"
HERS, HER_USER = "2" * 32, "1" * 32
"""The project and the user whose things are asked for."""
MEMBER = ("member", "reader")
EVERY_ROLE = ("admin", "manager", "member", "reader", "service")
METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH")


def fitting(service: str) -> tuple[AccessRule, ...]:
    return tuple(AccessRule(service, method, "/**") for method in METHODS)


PERSONAS: dict[str, Principal | None] = {
    "none": None,
    "other": Principal("7" * 32, project="5" * 32, roles=("manager", *MEMBER)),
    "reader": Principal("3" * 32, project=HERS, roles=("reader",)),
    "member": Principal(HER_USER, project=HERS, roles=MEMBER),
    "manager": Principal("e" * 32, project=HERS, roles=("manager", *MEMBER)),
    "admin": Principal("a" * 32, project="b" * 32, roles=("admin", "manager", *MEMBER)),
    "service": Principal("8" * 32, project="9" * 32, roles=("service",)),
    "system": Principal("6" * 32, system=True, roles=EVERY_ROLE),
    "domain": Principal("d" * 32, domain="default", roles=EVERY_ROLE),
    "unscoped": Principal(HER_USER),
    "app_cred": Principal(HER_USER, project=HERS, roles=MEMBER),
    "ruled": Principal(HER_USER, project=HERS, roles=MEMBER, access_rules=(*fitting("compute"), *fitting("placement"))),
    "ruled_out": Principal(HER_USER, project=HERS, roles=MEMBER, access_rules=fitting("identity")),
}
"""`app_cred` is an application credential; `ruled` and `ruled_out` are some with access rules, for this service and for another."""
YES, MANY = "yes", frozenset({"server", "operation"})
"""Things of these kinds are hidden from other projects: 404, and not 403."""


class Judge:
    """oslo.policy, with a service's rules as it registers them."""

    def __init__(self, name: str, more: Mapping[str, str] = {}) -> None:
        conf = cfg.ConfigOpts()
        opts.set_defaults(conf)
        conf(args=[], default_config_files=[], default_config_dirs=[])
        self._enforcer = policy.Enforcer(conf, policy_file="there is none")
        self.guards: dict[str, tuple[str, ...]] = {}
        for rule, check, scopes, calls in _rows(FACTS / name):
            types = None if scopes == "-" else scopes.split(",")
            self._enforcer.register_default(policy.RuleDefault(rule, check, scope_types=types))
            self.guards[rule] = tuple(calls.split(" ; ")) if calls != "-" else ()
        for rule, check in more.items():
            self._enforcer.register_default(policy.RuleDefault(rule, check, scope_types=["project"]))
        self._enforcer.load_rules()

    def allows(self, principal: Principal, rule: str, target: Mapping[str, Any]) -> bool:
        body: dict[str, Any] = {
            "user_id": principal.user,
            "project_id": principal.project,
            "domain_id": principal.domain,
            "system_scope": "all" if principal.system else None,
            "roles": list(principal.roles),
            "is_admin": "admin" in principal.roles,
        }
        return bool(self._enforcer.enforce(rule, dict(target), body, do_raise=False))


def nova() -> Judge:
    return Judge(
        "nova_policies.tsv",
        {name: check for name, (check, _) in RULES.items() if name.startswith("moorage:")},
    )


def placement() -> Judge:
    return Judge("placement_policies.tsv")


def _rows(path: Path) -> Iterable[list[str]]:
    return (line.split("\t") for line in path.read_text().splitlines() if line and not line.startswith("#"))


def expected(judge: Judge, persona: str, checks: str) -> str:
    """What a persona is answered: `yes`, or the status of the refusal."""
    principal = PERSONAS[persona]
    if principal is None or persona == "ruled_out":
        return "401"
    for check in checks.split(" + "):
        whose, _, rule = check.partition(":")
        if whose == "open":
            continue
        target = {"project_id": HERS, "user_id": HER_USER}
        if whose == "own":
            target = {"project_id": principal.project, "user_id": principal.user}
        if whose in MANY and principal.project != HERS and not judge.allows(principal, ADMIN_IN_A_PROJECT, {}):
            return "404"
        if rule and not judge.allows(principal, rule, target):
            return "403"
    return YES


ADMIN_IN_A_PROJECT = "os_compute_api:os-services:list"
"""Whoever may this sees all projects' things; tokens beyond projects are nobody's administrators here."""


class Table:
    """A golden file of routes, checks and outcomes."""

    def __init__(self, name: str, judge: Judge) -> None:
        self.path, self.judge = FACTS / name, judge
        self.checks: dict[str, str] = {}
        self.outcomes: dict[str, dict[str, str]] = {}
        if not self.path.exists():
            return
        for line in self.path.read_text().splitlines():
            if line.startswith("#") or not line.strip():
                continue
            key, checks, outcomes = (part.strip() for part in line.split(" | "))
            self.checks[key] = checks
            self.outcomes[key] = dict(zip(PERSONAS, outcomes.split(), strict=True))

    def derived(self, key: str) -> dict[str, str]:
        checks = self.checks[key]
        return {persona: "?" if checks == "?" else expected(self.judge, persona, checks) for persona in PERSONAS}

    def bless(self, keys: Iterable[str]) -> None:
        """Columns of the checks that stand there; never of an answer."""
        wanted = list(keys)
        self.checks = {key: self.checks.get(key, "?") for key in wanted}
        width, wide = max(map(len, wanted)), max(map(len, self.checks.values()))
        lines = [f"# {'route':<{width - 2}} | {'checks':<{wide}} | " + " ".join(f"{each:<9}" for each in PERSONAS)]
        self.outcomes = {key: self.derived(key) for key in wanted}
        for key, checks in self.checks.items():
            told = " ".join(f"{outcome:<9}" for outcome in self.outcomes[key].values())
            lines.append(f"{key:<{width}} | {checks:<{wide}} | {told}".rstrip())
        self.path.write_text("\n".join(lines) + "\n")
