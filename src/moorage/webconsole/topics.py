"""The contents of each page: the calls that it needs, and the fields of their answers that browsers get.

A topic is a name with parameters (`server/ID`, `servers?all=1&name=web`); each has one function, which makes calls with one user's token.
A part that is refused, or whose service is out, is replaced by a sentence, and the rest is shown. `lively`: something is under way, so
poll again soon.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode

from moorage.webconsole.sessions import Identity
from moorage.webconsole.upstream import Down, Upstream, UpstreamRefused

Json: TypeAlias = dict[str, Any]
LISTED_MAX = 100
ERRORS_SHOWN_MAX = 20
WORD_CHARS_MAX = 255
OPEN = ("open", "cleaning", "stuck")
UNAUTHORIZED = 401


class Unknown(ValueError):
    """Raised when there is no such topic."""


class SessionOver(Exception):
    """Raised when the API no longer accepts the token."""


@dataclass(frozen=True)
class TopicState:
    """The data for a browser."""

    data: Json
    lively: bool = False


class TopicReader:
    """Makes calls as one user."""

    def __init__(self, upstream: Upstream, identity: Identity) -> None:
        self._upstream = upstream
        self.identity = identity

    async def get(self, path: str, service: str = "compute", **query: Any) -> Any:
        """GET a path of a service. Raises Refused when it refuses, Down when it does not answer, and SessionOver for an invalid token."""
        base = self.identity.endpoints.get(service)
        if base is None:
            raise Down(502, f"Keystone's catalog has no {service} endpoint.")
        if service == "network" and not base.endswith("/v2.0"):
            base += "/v2.0"
        elif service == "image" and not base.endswith("/v2"):
            base += "/v2"
        words = [(name, each) for name, value in query.items() for each in _many(value)]
        url = f"{base}{path}" + (f"?{urlencode(words)}" if words else "")
        try:
            return (await self._upstream.call("GET", url, self.identity.token)).body
        except UpstreamRefused as refused:
            if refused.status == UNAUTHORIZED:
                raise SessionOver from refused
            raise

    async def part(self, key: str, path: str, service: str = "compute", **query: Any) -> Any:
        """GET a part that the page does not need, all of the answer with an empty key; an error becomes a sentence in its place."""
        try:
            body = await self.get(path, service, **query)
            return body[key] if key else body
        except (UpstreamRefused, Down) as trouble:
            return {"trouble": trouble.sentence, "status": trouble.status}
        except (KeyError, TypeError):
            return {"trouble": f"The {service} service did not answer with {key}.", "status": 502}


def _many(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


Topic: TypeAlias = Callable[[TopicReader, str, Mapping[str, str]], Awaitable[TopicState]]


def rows_of(part: Any) -> list[Json]:
    """Return the rows of a part; none if the part is a sentence."""
    return part if isinstance(part, list) else []


def only(row: Mapping[str, Any], *names: str) -> Json:
    return {name: row.get(name) for name in names}


def _everyone(reader: TopicReader) -> Json:
    return {"all_projects": 1} if reader.identity.is_admin else {}


async def overview(reader: TopicReader, _: str, __: Mapping[str, str]) -> TopicState:
    """Return what runs, waits and is stuck, and what runs out first."""
    tenants: dict[str, Any] = {"all_tenants": 1} if reader.identity.is_admin else {}
    parts: dict[str, Awaitable[Any]] = {
        "operations": reader.part("operations", "/ext/operations", status=OPEN, limit=LISTED_MAX, **_everyone(reader)),
        "errors": reader.part("servers", "/servers/detail", status="ERROR", limit=ERRORS_SHOWN_MAX, **tenants),
        "building": reader.part("servers", "/servers", status="BUILD", limit=LISTED_MAX, **tenants),
        "active": reader.part("servers", "/servers", status="ACTIVE", limit=LISTED_MAX, **tenants),
        "limits": reader.part("limits", "/limits"),
        "sleepers": reader.part("", "/ext/waiting", limit=1, **_everyone(reader)),
    }
    if reader.identity.is_admin:
        parts |= {
            "totals": reader.part("totals", "/ext/fit-map/totals"),
            "segments": reader.part("segments", "/segments", "network"),
            "networks": reader.part("networks", "/networks", "network"),
            "cells": reader.part("cells", "/ext/cells"),
            "gates": reader.part("gates", "/ext/gates"),
            "out": reader.part("left_alone", "/ext/neighbours"),
            "troubled": reader.part("hosts", "/ext/hosts"),
            "audits": reader.part("audits", "/ext/audits", limit=1),
            "conductors": reader.part("services", "/os-services", binary="nova-conductor"),
        }
    data = dict(zip(parts, await asyncio.gather(*parts.values()), strict=True))
    data["errors"] = _each(data["errors"], server_row)
    for name in ("building", "active"):
        data[name] = len(data[name]) if isinstance(data[name], list) else data[name]
    data["limits"] = _each_value(data["limits"], "absolute")
    if reader.identity.is_admin:
        named_segments(data)
        data["warnings"] = data.pop("gates").get("warnings", [])
        data["conductors"] = _each(data["conductors"], lambda each: only(each, "host", "state"))
    data["sleepers"] = _sleepers(data["sleepers"])
    asleep = data["sleepers"].get("servers", 0)
    return TopicState(data, lively=len(rows_of(data["operations"])) > asleep)


def _sleepers(waiting: Any) -> Json:
    """How many servers wait for a host, and for what."""
    return (
        waiting if "trouble" in waiting else {"servers": waiting.get("servers", 0), "causes": waiting.get("causes", {})}
    )


def _each(part: Any, change: Callable[[Json], Json]) -> Any:
    return [change(each) for each in part] if isinstance(part, list) else part


def _each_value(part: Any, key: str) -> Any:
    return part.get(key, part) if isinstance(part, dict) else part


def named_segments(data: Json) -> None:
    """Return names of segments for people: their own name or their network's, with the physical network."""
    networks = {each["id"]: each["name"] for each in rows_of(data.pop("networks"))}
    known = {each["id"]: each for each in rows_of(data.pop("segments"))}
    totals = data.get("totals") or data.get("fit_map")
    for each in totals.get("segments", []) if isinstance(totals, dict) else []:
        segment = known.get(each["id"])
        if segment is not None:
            network = networks.get(segment["network_id"], segment["network_id"])
            wire = segment.get("physical_network") or segment.get("network_type") or ""
            each["name"] = f"{network}: {segment.get('name') or wire}"
            each["wire"] = wire


def server_row(server: Json) -> Json:
    return {
        **only(server, "id", "name", "status", "tenant_id", "created", "updated", "addresses", "fault"),
        "task": server.get("OS-EXT-STS:task_state"),
        "power": server.get("OS-EXT-STS:power_state"),
        "host": server.get("OS-EXT-SRV-ATTR:host"),
        "zone": server.get("OS-EXT-AZ:availability_zone"),
        "flavor": (server.get("flavor") or {}).get("original_name"),
    }


SERVERS_QUERY = {"name", "status", "marker"}


async def servers(reader: TopicReader, _: str, words: Mapping[str, str]) -> TopicState:
    """Return a page of servers, newest first. The API filters them."""
    query: Json = {name: value for name, value in words.items() if name in SERVERS_QUERY and value}
    if reader.identity.is_admin and words.get("all", "1") == "1":
        query["all_tenants"] = 1
    body = await reader.get("/servers/detail", limit=LISTED_MAX, **query)
    rows = [server_row(each) for each in body["servers"]]
    lively = any(row["task"] or row["status"] == "BUILD" for row in rows)
    return TopicState({"servers": rows, "more": bool(body.get("servers_links"))}, lively)


async def server(reader: TopicReader, id: str, _: Mapping[str, str]) -> TopicState:
    """Return one server, its ports with their segments and devices, the reasons for its host, and its actions."""
    parts: dict[str, Awaitable[Any]] = {
        "server": reader.get(f"/servers/{quote(id, safe='')}"),
        "explain": reader.part("explain", f"/ext/servers/{quote(id, safe='')}/explain"),
        "ports": reader.part("ports", "/ports", "network", device_id=id),
        "subnets": reader.part("subnets", "/subnets", "network"),
        "networks": reader.part("networks", "/networks", "network"),
    }
    if reader.identity.is_admin:
        parts["segments"] = reader.part("segments", "/segments", "network")
        parts["moves"] = reader.part("moves", f"/ext/servers/{quote(id, safe='')}/moves", limit=10)
    data = dict(zip(parts, await asyncio.gather(*parts.values()), strict=True))
    whole = data["server"]["server"]
    row = server_row(whole) | only(whole, "flavor", "image", "hostId", "locked", "description", "tags", "key_name")
    data["server"] = row | {"flavor_name": whole["flavor"].get("original_name")}
    data["ports"] = _ports(data)
    if isinstance(data["explain"], dict) and "operations" in data["explain"]:
        data["explain"] = _lighter(data["explain"])
    running = any(each["status"] in OPEN for each in rows_of(data["explain"].get("operations")))
    return TopicState(data, lively=bool(row["task"]) or row["status"] == "BUILD" or running)


REFUSED_HOSTS_MAX, ATTEMPTS_MAX = 200, 50


def _lighter(explain: Json) -> Json:
    """The beginning of a long explanation; `moorage explain` shows all of it."""
    operations = []
    for each in explain["operations"][-ATTEMPTS_MAX:]:
        attempts = [_fewer(attempt) for attempt in each["attempts"][-ATTEMPTS_MAX:]]
        operations.append(each | {"attempts": attempts} | ({"ended": _fewer(each["ended"])} if "ended" in each else {}))
    return explain | {"operations": operations}


def _fewer(ledger: Json) -> Json:
    kept = {name: value for name, value in ledger.items() if name not in {"refused_hosts", "failed"}}
    if "refused_hosts" in ledger:
        kept["refused_hosts"] = ledger["refused_hosts"][:REFUSED_HOSTS_MAX]
    if "failed" in ledger:
        kept["failed"] = _fewer(ledger["failed"])
    return kept


def _ports(data: Json) -> Any:
    """Each port with its addresses, its segment, and its device on the host."""
    subnets = {each["id"]: each for each in rows_of(data.pop("subnets"))}
    networks = {each["id"]: each["name"] for each in rows_of(data.pop("networks"))}
    segments = {each["id"]: each for each in rows_of(data.pop("segments", []))}
    return _each(data["ports"], lambda port: _port(port, subnets, networks, segments))


def _port(port: Json, subnets: Json, networks: Json, segments: Json) -> Json:
    serving = {}
    for each in port["fixed_ips"]:
        subnet = subnets.get(each["subnet_id"], {})
        segment = segments.get(subnet.get("segment_id"), {})
        if subnet.get("segment_id"):
            wire = segment.get("physical_network") or ""
            serving[subnet["segment_id"]] = {"name": segment.get("name") or wire or subnet["segment_id"], "wire": wire}
    details = port.get("binding:vif_details") or {}
    return {
        **only(port, "id", "name", "status", "mac_address", "resource_request"),
        "network": networks.get(port["network_id"], port["network_id"]),
        "addresses": [each["ip_address"] for each in port["fixed_ips"]],
        "segments": list(serving.values()),
        "host": port.get("binding:host_id"),
        "vif": port.get("binding:vif_type"),
        "bridge": details.get("bridge_name"),
        "vnic": port.get("binding:vnic_type"),
        "allocation": (port.get("binding:profile") or {}).get("allocation"),
    }


OPERATIONS_QUERY = {"status", "server", "marker"}


async def operations(reader: TopicReader, _: str, words: Mapping[str, str]) -> TopicState:
    """Return the newest operations, and separately those that are stuck."""
    query: Json = {name: value for name, value in words.items() if name in OPERATIONS_QUERY and value}
    everyone = _everyone(reader) if words.get("all", "1") == "1" else {}
    listed, stuck = await asyncio.gather(
        reader.get("/ext/operations", limit=LISTED_MAX, **query, **everyone),
        reader.part("operations", "/ext/operations", status="stuck", limit=LISTED_MAX, **everyone),
    )
    rows = listed["operations"]
    return TopicState({"operations": rows, "stuck": stuck}, lively=any(each["status"] in OPEN for each in rows))


async def operation(reader: TopicReader, id: str, _: Mapping[str, str]) -> TopicState:
    row = (await reader.get(f"/ext/operations/{quote(id, safe='')}"))["operation"]
    row.pop("lines", None)
    return TopicState({"operation": row}, lively=row["status"] in OPEN)


async def fit_map(reader: TopicReader, _: str, __: Mapping[str, str]) -> TopicState:
    picture, segments, networks = await asyncio.gather(
        reader.get("/ext/fit-map"),
        reader.part("segments", "/segments", "network"),
        reader.part("networks", "/networks", "network"),
    )
    data = {"fit_map": picture["fit_map"], "segments": segments, "networks": networks}
    named_segments(data)
    data["fit_map"].pop("at", None)  # if only the time differs, it is not sent again
    return TopicState(data)


async def fleet(reader: TopicReader, _: str, words: Mapping[str, str]) -> TopicState:
    query: Json = {name: words[name] for name in ("marker",) if words.get(name)}
    if words.get("trouble") == "1":
        query["trouble"] = 1
    parts: dict[str, Awaitable[Any]] = {
        "hosts": reader.get("/ext/fleet", limit=LISTED_MAX, **query),
        "cells": reader.part("cells", "/ext/cells"),
        "gates": reader.part("gates", "/ext/gates"),
        "databases": reader.part("databases", "/ext/databases"),
        "out": reader.part("left_alone", "/ext/neighbours"),
        "troubled": reader.part("hosts", "/ext/hosts"),
        "approvals": reader.part("host_approvals", "/ext/host-approvals"),
    }
    data = dict(zip(parts, await asyncio.gather(*parts.values()), strict=True))
    data["approvals"] = [each for each in rows_of(data["approvals"]) if each["status"] == "waiting"][:LISTED_MAX]
    return TopicState(data)


DRAINS_SHOWN_MAX = 10
MOVING = ("waiting", "running")


async def moves(reader: TopicReader, _: str, __: Mapping[str, str]) -> TopicState:
    """Return migrations, and drains of hosts and cells; drains under way with each server."""
    drains, cell_drains, migrations = await asyncio.gather(
        reader.part("drains", "/ext/drains", limit=LISTED_MAX),
        reader.part("cell_drains", "/ext/cell-drains", limit=LISTED_MAX),
        reader.part("migrations", "/os-migrations", limit=LISTED_MAX),
    )
    open_drains = [each for each in rows_of(drains) if not each["ended_at"]][:DRAINS_SHOWN_MAX]
    details = await asyncio.gather(*(reader.part("drain", f"/ext/drains/{each['id']}") for each in open_drains))
    open_cells = [each for each in rows_of(cell_drains) if not each["ended_at"]][:DRAINS_SHOWN_MAX]
    parts = await asyncio.gather(*(reader.part("cell_drain", f"/ext/cell-drains/{each['id']}") for each in open_cells))
    data = {
        "drains": drains,
        "cell_drains": cell_drains,
        "migrations": migrations,
        "open_drains": [each for each in details if "servers" in each],
        "open_cell_drains": [each for each in parts if "hosts" in each],
    }
    going = any(each["status"] not in OVER for each in rows_of(migrations))
    return TopicState(data, lively=bool(open_drains or open_cells or going))


OVER = frozenset({"done", "completed", "finished", "confirmed", "reverted", "error", "failed", "cancelled"})
"""Statuses of ended migrations and drains; `finished` waits for a person."""


async def audits(reader: TopicReader, _: str, __: Mapping[str, str]) -> TopicState:
    rows = (await reader.get("/ext/audits", limit=LISTED_MAX))["audits"]
    return TopicState({"audits": rows}, lively=any(not each["ended_at"] for each in rows))


FINDINGS_SHOWN_MAX = 500


async def audit(reader: TopicReader, id: str, _: Mapping[str, str]) -> TopicState:
    row = (await reader.get(f"/ext/audits/{quote(id, safe='')}"))["audit"]
    kinds = await reader.part("kinds", "/ext/audits/kinds")
    row["findings"] = row["findings"][:FINDINGS_SHOWN_MAX]
    row["repairs"] = row["repairs"][:FINDINGS_SHOWN_MAX]
    return TopicState({"audit": row, "kinds": kinds}, lively=not row["ended_at"])


async def choices(reader: TopicReader, _: str, __: Mapping[str, str]) -> TopicState:
    """Return the choices in forms: flavors, images and networks of the project."""
    flavors, images, networks = await asyncio.gather(
        reader.part("flavors", "/flavors/detail", limit=LISTED_MAX),
        reader.part("images", "/images", "image", limit=LISTED_MAX, status="active"),
        reader.part("networks", "/networks", "network"),
    )
    data = {
        "flavors": _each(flavors, lambda each: only(each, "id", "name", "vcpus", "ram", "disk")),
        "images": _each(images, lambda each: only(each, "id", "name")),
        "networks": _each(networks, lambda each: only(each, "id", "name")),
    }
    return TopicState(data)


PLAIN: dict[str, Topic] = {
    "overview": overview,
    "servers": servers,
    "operations": operations,
    "fit-map": fit_map,
    "fleet": fleet,
    "moves": moves,
    "audits": audits,
    "choices": choices,
}
OF_ONE: dict[str, Topic] = {"server": server, "operation": operation, "audit": audit}
WORDS = {"all", "name", "status", "server", "marker", "trouble"}


def parse(text: str) -> tuple[str, Topic, str, Mapping[str, str]]:
    """Return the topic in its normal form, its function, id and parameters. Raises Unknown."""
    path, _, query = text.partition("?")
    name, _, id = path.partition("/")
    words = dict(sorted(parse_qsl(query, max_num_fields=len(WORDS))))
    if not set(words) <= WORDS or any(len(each) > WORD_CHARS_MAX for each in (*words.values(), id)):
        raise Unknown(text)
    topic = OF_ONE.get(name) if id else PLAIN.get(name)
    if topic is None:
        raise Unknown(text)
    known = f"{name}/{id}" if id else name
    return known + (f"?{urlencode(words)}" if words else ""), topic, id, words
