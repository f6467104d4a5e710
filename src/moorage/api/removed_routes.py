"""What is no more: calls that answer 410 at every version, and what Nova 34 itself keeps only for old versions.

The second kind passed calls on to the image, network, volume and bare-metal services; from the version that ended them on
they are unknown (404).
"""

from moorage.api.call import AnyCall, Response
from moorage.api.routes import Params, Route
from moorage.model.errors import Gone

AS_ASKED = Params(strict=None)


async def gone(call: AnyCall) -> Response:
    """Answer 410 for a route that was removed. Raises Gone."""
    raise Gone("This resource is no longer available.  No forwarding address is given.")


TOMBSTONES = """
    GET POST /os-agents · PUT DELETE /os-agents/{id}
    GET POST /os-cells · GET /os-cells/capacities · GET /os-cells/detail · GET /os-cells/info
    POST /os-cells/sync_instances · GET PUT DELETE /os-cells/{id} · GET /os-cells/{id}/capacities
    POST /os-certificates · GET /os-certificates/{id}
    GET POST /os-cloudpipe · PUT /os-cloudpipe/{id}
    GET /os-fixed-ips/{id} · POST /os-fixed-ips/{id}/action
    GET /os-floating-ip-dns · PUT DELETE /os-floating-ip-dns/{id}
    GET PUT DELETE /os-floating-ip-dns/{id}/entries/{name}
    GET POST /os-floating-ips-bulk · GET PUT /os-floating-ips-bulk/{id}
    GET /os-fping · GET /os-fping/{id}
    POST /os-networks · POST /os-networks/add · DELETE /os-networks/{id} · POST /os-networks/{id}/action
    POST /os-tenant-networks · DELETE /os-tenant-networks/{id}
    GET POST /os-security-group-default-rules · GET DELETE /os-security-group-default-rules/{id}
    GET POST /servers/{id}/consoles · GET DELETE /servers/{id}/consoles/{console}
    GET /servers/{id}/os-virtual-interfaces
"""
ENDED_BY_36 = """
    GET /images · GET /images/detail · GET DELETE /images/{id}
    GET /os-networks · GET /os-networks/{id} · GET /os-tenant-networks · GET /os-tenant-networks/{id}
    GET /os-floating-ip-pools · GET POST /os-floating-ips · GET DELETE /os-floating-ips/{id}
    GET POST /os-security-groups · GET PUT DELETE /os-security-groups/{id}
    POST /os-security-group-rules · DELETE /os-security-group-rules/{id}
    GET POST /os-baremetal-nodes · GET DELETE /os-baremetal-nodes/{id} · POST /os-baremetal-nodes/{id}/action
    GET POST /os-volumes · GET /os-volumes/detail · GET DELETE /os-volumes/{id}
    GET POST /os-snapshots · GET /os-snapshots/detail · GET DELETE /os-snapshots/{id}
"""
ENDED_BY_39 = """
    GET POST PUT /images/{id}/metadata · GET PUT DELETE /images/{id}/metadata/{key}
"""
ENDED_BY_43 = """
    GET /os-hosts · GET PUT /os-hosts/{id}
    GET /os-hosts/{id}/reboot · GET /os-hosts/{id}/shutdown · GET /os-hosts/{id}/startup
"""


def listed(text: str) -> tuple[tuple[str, str], ...]:
    """`GET POST /a · PUT /b` → (GET, /a), (POST, /a), (PUT, /b)."""
    calls: list[tuple[str, str]] = []
    for part in text.replace("\n", "·").split("·"):
        if words := part.split():
            calls += [(method, words[-1]) for method in words[:-1]]
    return tuple(calls)


def keys(text: str) -> tuple[str, ...]:
    """The same, as changes name routes."""
    return tuple(f"{method} {path}" for method, path in listed(text))


ROUTES = tuple(Route(method, path, gone, params=AS_ASKED) for method, path in listed(TOMBSTONES))
