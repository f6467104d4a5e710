"""Which options a domain may have of its own, and what they are without.

They are Keystone's: a domain's users may come from a directory.  The embedded service keeps what is said for those who
ask, and has all its users in its own tables whatever it is.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from moorage.model.errors import Forbidden

SHOWN: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "identity": {"driver": "sql", "list_limit": None},
        "ldap": {
            "url": "ldap://localhost",
            "user": None,
            "suffix": "cn=example,cn=com",
            "query_scope": "one",
            "page_size": 0,
            "alias_dereferencing": "default",
            "debug_level": None,
            "chase_referrals": None,
            "user_tree_dn": None,
            "user_filter": None,
            "user_objectclass": "inetOrgPerson",
            "user_id_attribute": "cn",
            "user_name_attribute": "sn",
            "user_mail_attribute": "mail",
            "user_description_attribute": "description",
            "user_pass_attribute": "userPassword",
            "user_enabled_attribute": "enabled",
            "user_enabled_invert": False,
            "user_enabled_mask": 0,
            "user_enabled_default": "True",
            "user_attribute_ignore": ["default_project_id"],
            "user_default_project_id_attribute": None,
            "user_enabled_emulation": False,
            "user_enabled_emulation_dn": None,
            "user_enabled_emulation_use_group_config": False,
            "user_additional_attribute_mapping": [],
            "group_tree_dn": None,
            "group_filter": None,
            "group_objectclass": "groupOfNames",
            "group_id_attribute": "cn",
            "group_name_attribute": "ou",
            "group_members_are_ids": False,
            "group_member_attribute": "member",
            "group_desc_attribute": "description",
            "group_attribute_ignore": [],
            "group_additional_attribute_mapping": [],
            "tls_cacertfile": None,
            "tls_cacertdir": None,
            "use_tls": False,
            "tls_req_cert": "demand",
            "use_pool": True,
            "pool_size": 10,
            "pool_retry_max": 3,
            "pool_retry_delay": 0.1,
            "pool_connection_timeout": -1,
            "pool_connection_lifetime": 600,
            "use_auth_pool": True,
            "auth_pool_size": 100,
            "auth_pool_connection_lifetime": 60,
        },
    }
)
"""Options that may be read again, with their defaults."""
SENSITIVE: Mapping[str, frozenset[str]] = MappingProxyType({"identity": frozenset(), "ldap": frozenset({"password"})})
"""Options that are kept and never shown."""
SECURITY_COMPLIANCE = "security_compliance"
COMPLIANCE: Mapping[str, Any] = MappingProxyType({"password_regex": None, "password_regex_description": None})
"""What everybody may read of the rules for passwords; the embedded service has none."""


def invalid(reason: str) -> Forbidden:
    return Forbidden(f"Invalid domain specific configuration: {reason}.")


def need_known(group: str | None, option: str | None) -> None:
    """Raises Forbidden for what no domain may have."""
    if group is None:
        return
    if group not in SHOWN:
        raise invalid(f"Group {group[:255]} is not supported for domain specific configurations")
    if option is not None and option not in SHOWN[group] and option not in SENSITIVE[group]:
        raise invalid(f"Option {option[:255]} in group {group} is not supported for domain specific configurations")
