"""Placement's rule names and defaults, judged by oslo.policy's checks; an operator's file may override them."""

from collections.abc import Callable, Mapping
from typing import Any

from oslo_policy import _checks
from oslo_policy import policy as oslo

from moorage.model.asker import Asker

_BASE = {
    "admin_api": "role:admin",
    "service_api": "role:service",
    "admin_or_service_api": "role:admin or role:service",
    "project_reader_api": "role:reader and project_id:%(project_id)s",
    "admin_or_project_reader_or_service_api": "rule:admin_or_service_api or rule:project_reader_api",
}
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

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        texts = dict(_BASE)
        for prefix, verbs in _NAMES.items():
            texts |= {f"{prefix}:{verb}": "rule:admin_or_service_api" for verb in verbs}
        texts["placement:usages"] = "rule:admin_or_project_reader_or_service_api"
        texts["placement:reshaper:reshape"] = "rule:service_api"
        texts.update(overrides or {})
        self.rules: dict[str, Any] = oslo.Rules.from_dict(texts)
        """Named `rules` because oslo's `rule:` check looks here."""

    def allows(self, asker: Asker, rule: str, target: Mapping[str, Any]) -> bool:
        """Whether the asker may; project scope is required."""
        if asker.system:
            return False
        credentials = {"user_id": asker.user, "project_id": asker.project, "roles": list(asker.roles)}
        check: Callable[..., Any] = _checks._check  # pyright: ignore[reportPrivateUsage]
        judged = check(rule=self.rules[rule], target=dict(target), creds=credentials, enforcer=self, current_rule=rule)
        return bool(judged)
