"""Requests to every listener: rightly asked first, then spoiled."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from typing_extensions import override

from moorage.api.microversions import NEWEST, OLDEST
from moorage.api.placement.route_table import ROUTES as PLACEMENT
from moorage.api.route_table import TABLE
from moorage.api.routes import Param, Route
from moorage.webconsole.changes import Change
from moorage.webconsole.login import LoginForm, OtherProject
from moorage.webconsole.topics import PLAIN
from moorage_embedded.identity.routes import ROUTES as IDENTITY
from moorage_embedded.image.routes import ROUTES as IMAGE
from moorage_embedded.network.routes import ROUTES as NETWORK
from moorage_embedded.volume.routes import ROUTES as VOLUME
from moorage_testing.fuzz import shapes
from moorage_testing.fuzz.random_values import FuzzDice
from moorage_testing.fuzz.samples import (
    ACTIONS,
    CONSOLE_PATHS,
    PLAIN_PATHS,
    SAMPLES,
)
from moorage_testing.fuzz.transport import FuzzRequest, written

SHARES = {
    "compute": 40,
    "placement": 14,
    "network": 16,
    "identity": 10,
    "image": 8,
    "volume": 8,
    "metadata": 2,
    "console": 2,
    "webconsole": 4,
}
NAMED_PART = re.compile(r"\{\w+\}")
PLACEHOLDER = re.compile(r"<([a-z_-]+)>")
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "G\x00T", "PROPFIND")
RAW_PART = 0.08
_NO_LINES = str.maketrans("", "", "\r\n\0")
SLOW = ("POST auth/tokens", "POST /api/login")
"""Each takes a fifth of a second of CPU when it is answered as it should be."""
SLOW_PART = 0.05
TOPICAL = ("/events", "/api/topic")
TOPICS_OF_ONE = ("server", "operation", "audit")
TOPICS = (*PLAIN, *TOPICS_OF_ONE)
CONSOLE_BODIES = {"POST /api/login": LoginForm, "POST /api/project": OtherProject, "POST /api/change": Change}
ENDLESS = ("/events",)
"""The web console's streams: their answers have no end."""


@dataclass
class KnownNames:
    """Existing values for requests: tokens, and ids by the name that precedes them in a path."""

    tokens: list[str] = field(default_factory=list)
    sessions: list[tuple[str, str]] = field(default_factory=list)
    """Of the web console: cookie, and the token that its pages send with a change."""
    project: str = ""
    ids: dict[str, list[str]] = field(default_factory=dict)
    spared: frozenset[str] = frozenset()
    """Texts that no path may name, or nobody could log in any more."""


@dataclass(frozen=True)
class _Place:
    """A method of a path: parts in `{…}` or `*` are filled in."""

    method: str
    path: str
    sample: str
    route: Route | None = None


class RequestStream:
    """A stream of them, of one seed."""

    def __init__(self, dice: FuzzDice, world: KnownNames, services: Collection[str]) -> None:
        """`services`: those that listen."""
        self.dice, self.world = dice, world
        self._shapes = shapes.Shapes(dice, _Known(world))
        self._places = _places(world)
        self._services = list(SHARES)
        self._weights = [SHARES[each] if each in services else 0 for each in self._services]

    def __iter__(self) -> Iterator[FuzzRequest]:
        while True:
            service = self.dice.choices(self._services, self._weights)[0]
            place = self.dice.choice(self._places[service])
            if place.sample not in SLOW or self.dice.chance(SLOW_PART):
                yield self._request(service, place)

    def _request(self, service: str, place: _Place) -> FuzzRequest:
        dice = self.dice
        method = dice.choice(METHODS) if dice.chance(0.02) else place.method
        target = self._path(place.path) + self._query(place)
        body = self._body(service, place) if method in {"POST", "PUT", "PATCH", "DELETE"} else b""
        payload = written(method, target, self._headers(service), body)
        if dice.chance(RAW_PART):
            return FuzzRequest(service, dice.bytes(payload), whole=False)
        return FuzzRequest(service, payload, whole="\x00" not in method and place.path not in ENDLESS)

    # ------------------------------------------------------------------------------------------------- the target

    def _path(self, path: str) -> str:
        found: list[str] = []
        for part in path.split("/"):
            if part == "*" or "{" in part:
                found.append(self._named(found[-1] if found else ""))
            else:
                found.append(part.replace("*", quote(self.dice.text()[:2_000], safe="", errors="replace")))
        if self.dice.chance(0.02):
            found.insert(self.dice.randrange(1, len(found) + 1), self.dice.one("", "..", "%2e%2e", "%00", "x"))
        return "/".join(found)

    def _named(self, before: str) -> str:
        dice, known = self.dice, self.world.ids.get(before)
        if known and dice.chance(0.7):
            return quote(dice.choice(known), safe="")
        value = dice.uuid() if dice.chance(0.4) else dice.text()[:2_000]
        return quote("x" if value in self.world.spared else value, safe="", errors="replace") or "x"

    def _query(self, place: _Place) -> str:
        dice, route = self.dice, place.route
        if place.path in TOPICAL and dice.chance(0.9):
            return "?" + urlencode([("topic", self._topic())], errors="replace")
        if not dice.chance(0.35):
            return ""
        known: Mapping[str, Param] = {} if route is None else route.params.known
        names = [*known, "limit", "marker", "sort_key", "sort_dir", "fields", "name", "id"]
        pairs: list[tuple[str, str]] = []
        for _ in range(dice.one(1, 1, 2, 4)):
            name = dice.text()[:100] if dice.chance(0.1) else dice.choice(names)
            many = dice.one(1, 1, 1, 1, 2, 40, 1_100)
            pairs += [(name, self._parameter_value(known.get(name)))] * many
        return "?" + urlencode(pairs, errors="replace")

    def _topic(self) -> str:
        """A page of the web console, or nearly one."""
        dice = self.dice
        topic: str = dice.one(*TOPICS)
        if topic in TOPICS_OF_ONE:
            topic += "/" + self._path_value("servers")
        return topic + dice.one(
            "", "", "?status=ERROR", "?trouble=1", "?marker=" + dice.text()[:200], dice.text()[:200]
        )

    def _parameter_value(self, param: Param | None) -> str:
        dice = self.dice
        if param is not None and param.form is not None and dice.chance(0.5):
            return dice.one("0", "1", "100", "2026-01-01T00:00:00Z", "created_at")
        return dice.one(dice.text()[:3_000], dice.ordinary_text(), dice.uuid(), "true", "asc")

    # ------------------------------------------------------------------------------------------- headers and bodies

    def _headers(self, service: str) -> list[tuple[str, str]]:
        dice = self.dice
        found = [("Host", self._odd_header() if dice.chance(0.02) else "127.0.0.1")]
        if service == "webconsole" and self.world.sessions and dice.chance(0.9):
            cookie, csrf = dice.choice(self.world.sessions)
            found.append(("Cookie", f"moorage={self._odd_header() if dice.chance(0.05) else cookie}"))
            found.append(("X-CSRF-Token", self._odd_header() if dice.chance(0.05) else csrf))
        if not dice.chance(0.06):
            token = self._odd_header() if dice.chance(0.04) else dice.choice(self.world.tokens)
            found.append(("X-Auth-Token", token if not dice.chance(0.02) else token[:50] + self._odd_header()))
        if service in {"compute", "placement", "volume"} and not dice.chance(0.1):
            found.append(
                (
                    "OpenStack-API-Version",
                    self._odd_header() if dice.chance(0.05) else f"{service} {self._version(service)}",
                )
            )
        if dice.chance(0.9):
            kind = (
                "application/openstack-images-v2.1-json-patch"
                if service == "image" and dice.chance(0.3)
                else "application/json"
            )
            found.append(("Content-Type", self._odd_header() if dice.chance(0.05) else kind))
        if dice.chance(0.05):
            names = ("X-Service-Token", "X-Subject-Token", "X-OpenStack-Nova-API-Version", "X-OpenStack-Request-ID", "If-Match", "Accept",
                     "Range", "Expect", "X-Forwarded-For", "X-Instance-ID", "Content-Encoding", "X-Roles", "Origin", "Upgrade")  # fmt: skip
            found.append((dice.choice(names), self._odd_header()))
        return found

    def _odd_header(self) -> str:
        return self.dice.text()[:3_000].translate(_NO_LINES)

    def _version(self, service: str) -> str:
        minor = {"compute": NEWEST.minor, "placement": 39, "volume": 71}[service]
        major = {"compute": OLDEST.major, "placement": 1, "volume": 3}[service]
        return self.dice.one("latest", f"{major}.{minor}", f"{major}.{self.dice.randrange(minor + 1)}")

    def _body(self, service: str, place: _Place) -> bytes:
        dice = self.dice
        if place.method == "DELETE" and not dice.chance(0.1):
            return b""
        if place.route is not None:
            value = self._of_route(place.route)
        elif place.sample in CONSOLE_BODIES:
            value = self._shapes.make(shapes.of(CONSOLE_BODIES[place.sample]))
        elif place.sample in SAMPLES.get(service, {}):
            value = self._drawn(SAMPLES[service][place.sample])
        else:
            value = dice.odd()
        if not dice.chance(0.15):
            value = dice.spoiled(value)
        return dice.body(value)

    def _of_route(self, route: Route) -> Any:
        if route.takes is not None:
            return self._shapes.make(shapes.of(route.takes))
        return {route.action: self.dice.one(None, {}, self.dice.odd())} if route.action else self.dice.odd()

    def _drawn(self, value: Any) -> Any:
        """A sample with its placeholders filled in."""
        if isinstance(value, dict):
            return {str(self._drawn(name)): self._drawn(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._drawn(each) for each in value]
        if not isinstance(value, str) or "<" not in value:
            return value
        if value == "<int>":
            return self.dice.one(0, 1, 2, 100, 65_535)
        return PLACEHOLDER.sub(lambda found: self._path_value(found[1]), value)

    def _path_value(self, kind: str) -> str:
        dice = self.dice
        match kind:
            case "name":
                return dice.ordinary_text()
            case "text":
                return dice.text()
            case "uuid":
                return dice.uuid()
            case "class":
                return dice.one("VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_A", "HW_CPU_X86_AVX")
            case "action":
                return dice.choice(ACTIONS)
            case "cidr":
                return dice.one("10.9.0.0/24", "10.9.0.0/16", "192.0.2.0/30", "fd00::/64", "0.0.0.0/0", "10.9.0.7")
            case "address":
                return dice.one("10.9.0.5", "192.0.2.7", "fd00::7")
            case "mac":
                return dice.one("fa:16:3e:00:00:01", "00:00:00:00:00:00", "FA-16-3E-00-00-02")
            case _:
                known = self.world.ids.get(kind)
                return dice.choice(known) if known else dice.uuid()


class _Known(Mapping[str, list[Any]]):
    """Values of bodies by the name of their field, as the world has them now."""

    FIELDS: ClassVar[Mapping[str, str]] = {
        "imageRef": "images", "flavorRef": "flavors", "server_uuid": "servers", "instance_uuid": "servers", "volumeId": "volumes",
        "volume_id": "volumes", "net_id": "networks", "network_id": "networks", "port_id": "ports", "snapshot_id": "snapshots",
        "tenant_id": "projects", "project_id": "projects",
        "flavor": "flavors", "image": "images", "server": "servers",
    }  # fmt: skip

    def __init__(self, world: KnownNames) -> None:
        self._world = world

    @override
    def __getitem__(self, name: str) -> list[Any]:
        return self._world.ids.get(self.FIELDS[name], [])

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self.FIELDS)

    @override
    def __len__(self) -> int:
        return len(self.FIELDS)


def _places(world: KnownNames) -> dict[str, list[_Place]]:
    found: dict[str, list[_Place]] = {
        "compute": [_Place(each.method, f"/v2.1{each.path}", each.key, each) for each in TABLE],
        "placement": [
            _Place(method, f"/placement{path}", f"{method} {path}") for path, by in PLACEMENT.items() for method in by
        ],
        "image": list(_of_table("/v2", IMAGE)),
        "volume": list(_of_table(f"/v3/{world.project}", VOLUME)),
        "network": list(_of_table("/v2.0", NETWORK)),
        "identity": list(_of_table("/v3", IDENTITY)),
    }
    found["webconsole"] = [_Place(each.partition(" ")[0], each.partition(" ")[2], each) for each in CONSOLE_PATHS]
    found["compute"] += [
        _Place("GET", path, "") for path in ("/", "/v2.1", "/v2.1/", "/v2", "/v3", "/nothing", "/healthcheck")
    ]
    for service, paths in PLAIN_PATHS.items():
        found[service] = [_Place(method, path, "") for path in paths for method in ("GET", "POST")]
    return found


def _of_table(prefix: str, routes: Mapping[str, Collection[str]]) -> Iterator[_Place]:
    for template, methods in routes.items():
        path = NAMED_PART.sub("*", template)
        yield from (_Place(method, f"{prefix}/{path}", f"{method} {path}") for method in methods)
