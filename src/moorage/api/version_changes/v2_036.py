"""2.36: what Nova only passed on to the network service is gone."""

from moorage.api import removed_routes
from moorage.api.microversions import Json, VersionChange

NETWORK_QUOTAS = ("fixed_ips", "floating_ips", "security_groups", "security_group_rules")
NETWORK_LIMITS = (
    "maxSecurityGroups",
    "maxSecurityGroupRules",
    "maxTotalFloatingIps",
    "totalFloatingIpsUsed",
    "totalSecurityGroupsUsed",
)
SETS = {"quota_set": NETWORK_QUOTAS}


def no_body_is_empty(body: Json) -> Json:
    """A floating address was asked for with no body at all as well."""
    return {} if body is None else body


CHANGE = VersionChange(
    at=(2, 36),
    summary="Network limits and quotas are gone; images, networks, floating addresses and security groups are not proxied.",
    ends=removed_routes.keys(removed_routes.ENDED_BY_36),
    request={"POST /os-floating-ips": no_body_is_empty},
    refuses_from={"PUT /os-quota-sets/{id}": SETS},
    retires={
        "GET /limits": {"limits.absolute": NETWORK_LIMITS},
        "GET /os-quota-sets/{id}": SETS,
        "GET /os-quota-sets/{id}/detail": SETS,
        "GET /os-quota-sets/{id}/defaults": SETS,
        "PUT /os-quota-sets/{id}": SETS,
    },
)
