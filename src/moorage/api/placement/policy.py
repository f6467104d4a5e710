"""Placement's rule names and defaults, judged by oslo.policy's checks; an operator's file may override them."""

from collections.abc import Callable, Mapping
from typing import Any

from oslo_policy import _checks

from moorage.api.policy import parsed
from moorage.api.policy_file import read_overrides
from moorage.model.errors import Invalid
from moorage.model.json_types import JsonObject
from moorage.model.principal import Principal

JUDGED_MAX = 4096
"""Rules do not change while a process lives, and one check costs a third of a request: answers are kept, unless a rule asks a server."""

_BASE = {
    "admin_api": "role:admin",
    "service_api": "role:service",
    "admin_or_service_api": "role:admin or role:service",
    "project_reader_api": "role:reader and project_id:%(project_id)s",
    "admin_or_project_reader_or_service_api": "rule:admin_or_service_api or rule:project_reader_api",
}
_OLD = ("service_api", "admin_or_service_api", "project_reader_api", "admin_or_project_reader_or_service_api")
"""Base rules that the older defaults knew as the administrator's."""
_NAMES = {
    "placement:resource_providers": ("list", "create", "show", "update", "delete", "usages"),
    "placement:resource_providers:inventories": ("list", "create", "show", "update", "delete"),
    "placement:resource_providers:aggregates": ("list", "update"),
    "placement:resource_providers:traits": ("list", "update", "delete"),
    "placement:resource_providers:allocations": ("list",),
    "placement:resource_classes": ("list", "create", "show", "update", "delete"),
    "placement:traits": ("list", "show", "update", "delete"),
    "placement:allocations": ("manage", "list", "update", "delete"),
    "placement:allocation_candidates": ("list",),
}


class PlacementPolicy:
    """The rules in force."""

    def __init__(self, overrides: Mapping[str, str] | None = None, *, new_defaults: bool = True) -> None:
        texts = dict(_BASE)
        if not new_defaults:
            texts |= {name: f"({_BASE[name]}) or role:admin" for name in _OLD}
        for prefix, verbs in _NAMES.items():
            texts |= {f"{prefix}:{verb}": "rule:admin_or_service_api" for verb in verbs}
        texts["placement:usages"] = "rule:admin_or_project_reader_or_service_api"
        texts["placement:reshaper:reshape"] = "rule:service_api"
        texts.update(overrides or {})
        self.rules: JsonObject = parsed(texts)
        """Named `rules` because oslo's `rule:` check looks here."""
        self._fixed = not any("http:" in text or "https:" in text for text in texts.values())
        self._judged: dict[object, bool] = {}

    @classmethod
    def of_file(cls, path: str | None, *, new_defaults: bool = True) -> "PlacementPolicy":
        """Defaults with an operator's file over them; raises Invalid when it cannot be read, or not obeyed in all it says."""
        if path is None:
            return cls(new_defaults=new_defaults)
        try:
            overrides = read_overrides(path, dict.fromkeys(cls().rules, ""))
        except ValueError as failure:
            raise Invalid(str(failure)) from failure
        return cls(overrides, new_defaults=new_defaults)

    def allows(self, principal: Principal, rule: str, target: Mapping[str, Any]) -> bool:
        """Whether the caller may; tokens of the system and of a domain may nothing."""
        if principal.beyond_projects:
            return False
        key = rule, principal.user, principal.project, tuple(principal.roles), tuple(target.items())
        if (known := self._judged.get(key)) is not None:
            return known
        judged = self._judge(principal, rule, target)
        if self._fixed:
            if len(self._judged) >= JUDGED_MAX:
                self._judged.clear()
            self._judged[key] = judged
        return judged

    def _judge(self, principal: Principal, rule: str, target: Mapping[str, Any]) -> bool:
        credentials: JsonObject = {"user_id": principal.user, "roles": list(principal.roles)}
        if principal.project is not None:  # else `project_id:%(project_id)s` would match an empty project
            credentials["project_id"] = principal.project
        check: Callable[..., Any] = _checks._check  # pyright: ignore[reportPrivateUsage]
        judged = check(rule=self.rules[rule], target=dict(target), creds=credentials, enforcer=self, current_rule=rule)
        return bool(judged)
