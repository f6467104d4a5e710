"""2.50: quota classes show server groups, and no network quotas."""

from moorage.api.microversions import VersionChange
from moorage.api.version_changes.v2_036 import NETWORK_QUOTAS

GROUPS = {"quota_class_set": ("server_groups", "server_group_members")}
NETWORK = {"quota_class_set": NETWORK_QUOTAS}

CHANGE = VersionChange(
    at=(2, 50),
    summary="Quota classes show `server_groups` and `server_group_members`; network quotas are gone from them.",
    adds={"GET /os-quota-class-sets/{id}": GROUPS, "PUT /os-quota-class-sets/{id}": GROUPS},
    retires={"GET /os-quota-class-sets/{id}": NETWORK, "PUT /os-quota-class-sets/{id}": NETWORK},
    refuses_from={"PUT /os-quota-class-sets/{id}": NETWORK},
)
