"""Who may do what: Nova's rule names and defaults, judged by oslo.policy's checks, fast.

oslo.policy's Enforcer costs hundreds of microseconds per question; its parsed checks cost a few.  So rules are parsed
once, operators' overrides (a YAML or JSON policy file) laid over them, and the checks called directly; answers for a
bare project and user target are remembered per caller.  New defaults and scope are always on (`enforce_scope`): every
rule is for project scope, so tokens of the system and of a domain are refused, whatever roles they carry.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from oslo_policy import _checks, _parser
from oslo_policy import policy as oslo

from moorage.api.policy_defaults import BASE, RULES
from moorage.api.policy_file import read_overrides
from moorage.model.errors import Forbidden, Internal
from moorage.model.json_types import JsonObject
from moorage.model.principal import Principal

REMEMBERED_MAX = 50_000


class Listed(msgspec.Struct, frozen=True):
    """One line of `moorage policy list`."""

    name: str
    check: str
    default: str
    operations: tuple[str, ...]


def credentials(principal: Principal) -> JsonObject:
    """What the checks may look at, under the names oslo.context gives them.

    What a token does not say is left out: `project_id:%(project_id)s` must not find the project that nobody has in a
    token without one.
    """
    fields = {
        "user_id": principal.user,
        "user_domain_id": principal.user_domain,
        "project_id": principal.project,
        "tenant": principal.project,
        "project_domain_id": principal.project_domain,
        "domain_id": principal.domain,
        "system_scope": "all" if principal.system else None,
        "roles": list(principal.roles),
        "service_roles": list(principal.service_roles),
        "is_admin": "admin" in principal.roles,
        "is_admin_project": principal.is_admin_project,
    }
    return {name: value for name, value in fields.items() if value is not None}


@lru_cache(maxsize=4_096)
def _parsed(text: str) -> Any:
    """Of a rule's text; a check has no state, so all policies of a process share it."""
    return _parser.parse_rule(text)


def parsed(texts: Mapping[str, str]) -> JsonObject:
    """Rules as oslo keeps them, to be judged by."""
    rules: JsonObject = oslo.Rules({name: _parsed(text) for name, text in texts.items()})
    return rules


class Policy:
    """The rules in force."""

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        self._texts = {**BASE, **{name: check for name, (check, _) in RULES.items()}}
        self._defaults = dict(self._texts)
        self._texts.update(overrides or {})
        self.rules = parsed(self._texts)
        """Named `rules` because oslo's `rule:` check looks here."""
        self._remembered: dict[tuple[Principal, str, str | None, str | None], bool] = {}

    @classmethod
    def of_file(cls, path: str | None) -> "Policy":
        """Defaults with an operator's file over them; None means defaults alone.

        Raises Internal when the file cannot be read, or not obeyed in all it says.
        """
        if path is None:
            return cls()
        try:
            return cls(read_overrides(path, cls()._defaults))
        except ValueError as failure:
            raise Internal(str(failure)) from failure

    def allows(self, principal: Principal, rule: str, target: Mapping[str, Any] | None = None) -> bool:
        """Whether the caller may; without a target, the caller's own project and user are the target."""
        if target is None:
            key = (principal, rule, principal.project, principal.user)
        elif len(target) == 2 and "project_id" in target and "user_id" in target:
            key = (principal, rule, target["project_id"], target["user_id"])
        else:
            return self._judge(principal, rule, target)
        known = self._remembered.get(key)
        if known is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            known = self._judge(principal, rule, {"project_id": key[2], "user_id": key[3]})
            self._remembered[key] = known
        return known

    def _judge(self, principal: Principal, rule: str, target: Mapping[str, Any]) -> bool:
        if principal.beyond_projects:
            return False
        check = self.rules.get(rule)
        if check is None:
            raise Internal(f"the policy has no rule {rule}")
        judged: Callable[..., Any] = _checks._check  # pyright: ignore[reportPrivateUsage]
        return bool(
            judged(rule=check, target=dict(target), creds=credentials(principal), enforcer=self, current_rule=rule)
        )

    def require(self, principal: Principal, rule: str, target: Mapping[str, Any] | None = None) -> None:
        """Check a policy rule. Raises Forbidden with Nova's message."""
        if not self.allows(principal, rule, target):
            raise Forbidden(f"Policy doesn't allow {rule} to be performed.")

    def listed(self) -> list[Listed]:
        """Return all rules for `moorage policy list`: their present values, their defaults, and the requests that they guard."""
        return [
            Listed(
                name,
                self._texts[name],
                self._defaults.get(name, ""),
                RULES[name][1] if name in RULES else (),
            )
            for name in sorted(self._texts)
        ]
