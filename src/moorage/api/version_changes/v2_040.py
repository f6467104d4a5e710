"""2.40: usage is paged."""

from moorage.api.microversions import VersionChange

PAGED = (2, 40)

CHANGE = VersionChange(
    at=(2, 40),
    summary="Usage reports take `limit` and `marker` (of servers), and link to the next page.",
    adds={
        "GET /os-simple-tenant-usage": {"": ("tenant_usages_links",)},
        "GET /os-simple-tenant-usage/{id}": {"": ("tenant_usage_links",)},
    },
    behaviour=("PAGED: older versions are given one page, without links.",),
)
