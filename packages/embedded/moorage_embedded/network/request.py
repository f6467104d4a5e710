"""A call: the open transaction, the caller, and the messages to send after the commit."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from moorage.model.ids import new_uuid
from moorage.model.principal import Principal
from moorage_embedded.network.faults import bad, forbidden, over_quota
from moorage_embedded.network.guarantees import GuaranteeChange
from moorage_embedded.network.policy import NetworkCaller
from moorage_embedded.network.store import Doc, NetworkStore

MAC_BASE = "fa:16:3e"


@dataclass(frozen=True)
class NetworkSettings:
    """Knobs of one service; the defaults are Neutron's."""

    ports_become_active: bool = True
    quotas: Mapping[str, int] = field(
        default_factory=lambda: {
            "network": 100,
            "subnet": 100,
            "port": 500,
            "security_group": 10,
            "security_group_rule": 100,
            "router": 10,
            "floatingip": 50,
            "rbac_policy": 10,
            "subnetpool": -1,
            "trunk": -1,
        }
    )
    mtu: int = 1500
    vlan_first: int = 100
    vlan_last: int = 4094
    tunnel_last: int = 16_000_000
    network_type: str = "geneve"
    dns_domain: str = "openstacklocal."
    allowed_address_pairs_max: int = 10
    list_page_max: int = 10_000
    forbidden_ranges: tuple[str, ...] = ()
    """No subnet but an administrator's has addresses of them."""


@dataclass(frozen=True)
class NetworkRequest:
    """What of a request a verb may read."""

    path: Mapping[str, str]
    """The parts that the route names."""
    pairs: Sequence[tuple[str, str]]
    """Of the query."""
    body: Any
    """A dictionary where there is a body; None: the route reads none."""
    if_match: str | None
    url: str

    @property
    def fields(self) -> list[str]:
        """The attributes that are asked for; empty: all."""
        return [value for name, value in self.pairs if name == "fields"]

    def inner(self, name: str) -> Any:
        """What the body says under this name. Raises NeutronFault (400)."""
        if name not in self.body:
            raise bad(f"Unable to find '{name}' in request body")
        return self.body[name]


@dataclass
class NetworkCall:
    """What a verb is given."""

    store: NetworkStore
    who: NetworkCaller
    settings: NetworkSettings
    events: list[dict[str, Any]] = field(default_factory=list)
    segments: set[str] = field(default_factory=set)
    claims: dict[str, GuaranteeChange] = field(default_factory=dict)
    """Port → what placement must change before this is committed."""

    def born(self, project: str | None) -> Doc:
        """The attributes that everything has."""
        now = stamp()
        return {
            "id": new_uuid(),
            "project_id": project,
            "tenant_id": project,
            "description": "",
            "tags": [],
            "created_at": now,
            "updated_at": now,
            "revision_number": 0,
        }

    def require(self, allowed: bool, rule: str, *more: str) -> None:
        """Raises NeutronFault (403) with the rules that do not allow it."""
        if not allowed:
            raise forbidden(rule, *more)

    def ourselves(self) -> "NetworkCall":
        """The same transaction, asked by the service itself: for the ports that routers and floating IPs are made of."""
        return replace(self, who=OURSELVES)

    def charge(self, project: str, noun: str, n: int = 1) -> None:
        """Count `n` more; refuses when that is over the project's limit."""
        used, cap = self.store.count(project, noun, n)
        limit = self.settings.quotas.get(noun, -1) if cap is None else cap
        if project and n > 0 and 0 <= limit < used:
            raise over_quota(noun)

    def unshare(self, object: str) -> None:
        """Remove the sharing of a deleted resource, and its RBAC policies."""
        for policy in self.store.children("rbac_policy", object):
            self.store.remove("rbac_policy", policy["id"])
            self.store.count(policy["project_id"], "rbac_policy", -1)
        self.store.unshare(object)

    def queue_compute_event(self, name: str, port: Doc) -> None:
        """Only a server's port is compute's business."""
        if port["device_id"] and port["device_owner"].startswith("compute:"):
            event = {"name": name, "server_uuid": port["device_id"], "tag": port["id"], "status": "completed"}
            self.events.append(event)


Verb: TypeAlias = Callable[[NetworkCall, NetworkRequest], Any]
"""What a route does; its answer is the body, and None is none."""
OURSELVES = NetworkCaller(Principal(user="network", project="network", roles=("admin", "service", "member", "reader")))


def stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def touched(doc: Doc) -> Doc:
    """The next revision of a document."""
    doc["revision_number"] += 1
    doc["updated_at"] = stamp()
    return doc


def new_mac() -> str:
    tail = secrets.token_bytes(3)
    return f"{MAC_BASE}:{tail[0]:02x}:{tail[1]:02x}:{tail[2]:02x}"
