"""The changes that a page may request, each as one fixed API call with the user's own token: a browser cannot cause any other call."""

from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import Meta

from moorage.webconsole.sessions import Identity
from moorage.webconsole.topics import UNAUTHORIZED, SessionOver
from moorage.webconsole.upstream import Upstream, UpstreamRefused

Id = Annotated[str, Meta(min_length=1, max_length=255)]
COUNT_MAX = 100
NETWORKS_MAX = 16


class NewServers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New servers, as the forms describe them."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    flavor: Id
    image: Id
    networks: Annotated[tuple[Id, ...], Meta(max_length=NETWORKS_MAX)] = ()
    zone: Annotated[str, Meta(max_length=255)] = ""
    count: Annotated[int, Meta(ge=1, le=COUNT_MAX)] = 1

    def body(self) -> dict[str, Any]:
        server: dict[str, Any] = {
            "name": self.name,
            "flavorRef": self.flavor,
            "imageRef": self.image,
            "networks": [{"uuid": each} for each in self.networks] or "none",
            "min_count": self.count,
            "max_count": self.count,
        }
        return {"server": server | ({"availability_zone": self.zone} if self.zone else {})}


class BootServers(NewServers, frozen=True, tag="boot", tag_field="change"):
    """New servers."""


class DryRun(NewServers, frozen=True, tag="dry-run", tag_field="change"):
    """A dry run: where new servers would go."""


Kbps = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Names = Annotated[tuple[Id, ...], Meta(max_length=100)]


class AskCapacity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="capacity", tag_field="change"):
    """How many more servers fit; with parts of the cloud taken away."""

    flavor: Id
    networks: Annotated[tuple[Id, ...], Meta(max_length=NETWORKS_MAX)] = ()
    zone: Annotated[str, Meta(max_length=255)] = ""
    egress_kbps: Kbps = 0
    ingress_kbps: Kbps = 0
    without: dict[Literal["hosts", "aggregates", "segments", "uplinks", "cells"], Names] = {}

    def body(self) -> dict[str, Any]:
        guaranteed = {"egress_kbps": self.egress_kbps, "ingress_kbps": self.ingress_kbps}
        networks = [{"uuid": each} | guaranteed for each in self.networks]
        question: dict[str, Any] = {"flavor": self.flavor, "networks": networks, "without": self.without}
        return {"capacity": question | ({"availability_zone": self.zone} if self.zone else {})}


class AskFailover(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="failover", tag_field="change"):
    """Whether every server finds another place when each of these fails."""

    kind: Literal["host", "aggregate", "segment", "cell"]
    names: Annotated[tuple[Id, ...], Meta(min_length=1, max_length=100)]


class DeleteServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="delete", tag_field="change"):
    server: Id


Act: TypeAlias = Literal["os-start", "os-stop", "reboot", "confirmResize", "revertResize", "migrate"]


class ServerAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="action", tag_field="change"):
    server: Id
    action: Act


class CancelMove(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cancel-move", tag_field="change"):
    server: Id
    move: Id


class CancelDrain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cancel-drain", tag_field="change"):
    drain: Id
    of: Literal["host", "cell"] = "host"


class BeginDrain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="drain", tag_field="change"):
    """Empty a host; `dry_run`: the plan only."""

    host: Id
    dry_run: bool = True


class BeginAudit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="audit", tag_field="change"):
    """Look for what is wrong; nothing is repaired."""


Change: TypeAlias = (
    BootServers
    | DryRun
    | AskCapacity
    | AskFailover
    | DeleteServer
    | ServerAction
    | CancelMove
    | CancelDrain
    | BeginDrain
    | BeginAudit
)
decode = msgspec.json.Decoder(Change).decode

_ARGUMENTS: dict[str, Any] = {"reboot": {"type": "SOFT"}}


def call_of(change: Change) -> tuple[str, str, Any]:
    """(method, path below the compute endpoint, body)."""
    match change:
        case BootServers():
            return "POST", "/servers", change.body()
        case DryRun():
            return "POST", "/ext/dry-run/servers", change.body()
        case AskCapacity():
            return "POST", "/ext/capacity", change.body()
        case AskFailover():
            return "POST", "/ext/failovers", {"failover": {"kind": change.kind, "names": change.names}}
        case DeleteServer():
            return "DELETE", f"/servers/{_part(change.server)}", None
        case ServerAction():
            return "POST", f"/servers/{_part(change.server)}/action", {change.action: _ARGUMENTS.get(change.action)}
        case CancelMove():
            path = f"/ext/servers/{_part(change.server)}/moves/{_part(change.move)}/action"
            return "POST", path, {"cancel": None}
        case CancelDrain():
            kind = "drains" if change.of == "host" else "cell-drains"
            return "POST", f"/ext/{kind}/{_part(change.drain)}/action", {"cancel": None}
        case BeginDrain():
            return "POST", "/ext/drains", {"drain": {"host": change.host, "dry_run": change.dry_run}}
        case BeginAudit():
            return "POST", "/ext/audits", {"audit": {}}


def _part(id: str) -> str:
    return quote(id, safe="")


async def make(change: Change, upstream: Upstream, identity: Identity) -> Any:
    """Make the call, and return the API's answer.

    Raises Refused when the API refuses, Down when it does not answer, and SessionOver when the token is no longer valid.
    """
    method, path, body = call_of(change)
    try:
        return (await upstream.call(method, identity.endpoints["compute"] + path, identity.token, json=body)).body
    except UpstreamRefused as refused:
        if refused.status == UNAUTHORIZED:
            raise SessionOver from refused
        raise
