"""The same random request streams to the real Placement 16 and to ours: the same answers.

Compared: status, title and code of errors, whole bodies up to order (not the wording of details, times and request ids), and the
headers that clients act on.  A stream that differs says its seed and the step.
"""

import random
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.helpers.malformed_requests import AT, PROVIDER, malformed

from moorage_testing.process import moorage_process
from moorage_testing.real_services.placement import real_placement_alone

pytestmark = pytest.mark.real

SEEDS = (1, 5, 6)
STEPS = 400
CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_TIDE", "NO_SUCH")
TRAITS = ("HW_CPU_X86_AVX", "COMPUTE_NODE", "MISC_SHARES_VIA_AGGREGATE", "CUSTOM_BLUE", "NOT_A_TRAIT")
VERSIONS = ("1.0", "1.4", "1.7", "1.8", "1.10", "1.12", "1.14", "1.17", "1.19", "1.22", "1.24", "1.27", "1.28", "1.29",
            "1.32", "1.34", "1.36", "1.37", "1.38", "1.39", "1.39", "1.39", "1.39", "1.39", "latest")  # fmt: skip
HEADERS = ("openstack-api-version", "vary", "content-type", "allow", "cache-control")
Request = tuple[str, str, Any]


class Stream:
    """Draws requests over a small world, so that they meet one another."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.providers = [str(uuid.UUID(int=self.dice.getrandbits(128), version=4)) for _ in range(6)]
        self.aggregates = [str(uuid.UUID(int=self.dice.getrandbits(128), version=4)) for _ in range(2)]
        first = self.aggregates[0]
        self.aggregates += [first.replace("-", ""), first.upper(), f"{{{first[:-2]}}}"]  # the last is none
        self.consumers = [str(uuid.UUID(int=self.dice.getrandbits(128), version=4)) for _ in range(4)]
        self.generations: dict[str, int] = {}
        self.held: dict[str, int | None] = {}

    def provider(self) -> str:
        return self.dice.choice(self.providers)

    def spelled(self, provider: str) -> str:
        """Now and then without its dashes, or in capitals: another text of the same UUID."""
        chance = self.dice.random()
        return provider.replace("-", "") if chance < 0.06 else provider.upper() if chance < 0.1 else provider

    def generation(self, provider: str) -> int:
        known = self.generations.get(provider, 0)
        return known if self.dice.random() < 0.9 else self.dice.randint(0, 9)

    def inventory(self) -> dict[str, Any]:
        dice = self.dice
        one: dict[str, Any] = {"total": dice.choice([0, 1, 4, 8, 16, -1, 2**31]) if dice.random() < 0.1 else 16}
        for name, values in (
            ("reserved", [0, 1, 16, 20]), ("min_unit", [1, 2]), ("max_unit", [4, 8]), ("step_size", [1, 2]),
            ("allocation_ratio", [1.0, 1.5, 4]),
        ):  # fmt: skip
            if dice.random() < 0.25:
                one[name] = dice.choice(values)
        return one

    def amounts(self) -> dict[str, int]:
        names = self.dice.sample(CLASSES[:3], self.dice.randint(1, 2))
        return {name: self.dice.choice([1, 1, 2, 4, 0 if self.dice.random() < 0.1 else 1]) for name in names}

    def inventories(self, provider: str, *, sound: bool = False) -> dict[str, Any]:
        """`sound`: the real reshaper takes more reserved than there is; ours does not."""
        names = self.dice.sample(CLASSES[:4], self.dice.randint(0, 3))
        return {
            "inventories": {name: {"total": 16} if sound else self.inventory() for name in names},
            "resource_provider_generation": self.generation(provider),
        }

    def consumer(self, consumer: str, version: tuple[int, int], *, empty: float = 0.15) -> dict[str, Any]:
        # The real one keeps a consumer of generation 0 when a provider or class is unknown, or nothing is asked for somebody new;
        # ours leaves nothing half written.  So these are not in the streams.
        known = [one for one in self.providers if one in self.generations]
        chosen = (
            []
            if self.dice.random() < empty and self.held.get(consumer) is not None
            else self.dice.sample(known, min(len(known), self.dice.randint(1, 2)))
        )
        body: dict[str, Any] = {"allocations": {one: {"resources": self.amounts()} for one in chosen}}
        if version < (1, 12):
            body["allocations"] = [
                {"resource_provider": {"uuid": one}, **rest} for one, rest in body["allocations"].items()
            ]
        if version >= (1, 8):
            body |= {"project_id": self.dice.choice(["p1", "p2"]), "user_id": "u"}
        if version >= (1, 28):
            held = self.held.get(consumer)
            body["consumer_generation"] = held if self.dice.random() < 0.9 else self.dice.choice([None, 1, 5])
        if version >= (1, 38):
            body["consumer_type"] = self.dice.choice(["INSTANCE", "MIGRATION"])
        return body

    def query(self) -> str:
        """Classes and traits that exist: whether the real one says 400 to others depends on what it has found before."""
        dice = self.dice
        asked = self.amounts()
        others = [name for name in CLASSES[:3] if name not in asked]
        parts = ["resources=" + ",".join(f"{n}:{max(a, 1)}" for n, a in asked.items())]
        if dice.random() < 0.3:
            parts.append(
                "required=" + dice.choice(["", "!", "!!"] if dice.random() < 0.3 else [""]) + dice.choice(TRAITS[:3])
            )
        if dice.random() < 0.2:
            parts.append("member_of=" + dice.choice(["", "in:", "!"]) + dice.choice(self.aggregates))
        if dice.random() < 0.15:
            parts.append("in_tree=" + self.spelled(self.provider()))
        if dice.random() < 0.25:
            # One class in two groups: the real one adds amounts of one candidate to another that shares a provider with it.
            parts.append(f"resources1={others.pop()}:1")
        if others and dice.random() < 0.25:
            parts.append(f"resources2={others.pop()}:2")
        if dice.random() < 0.4:
            parts.append("group_policy=" + dice.choice(["none", "isolate"]))
        if dice.random() < 0.1:
            parts.append("root_required=" + dice.choice(["", "!"]) + dice.choice(TRAITS[:3]))
        if dice.random() < 0.1:
            parts.append("same_subtree=1,2")
        return "&".join(parts)

    def draw(self, version: tuple[int, int]) -> Request:
        dice, one = self.dice, self.provider()
        at, consumer = f"/resource_providers/{one}", dice.choice(self.consumers)
        parent = dice.choice([None, *map(self.spelled, self.providers)])
        made = {"name": f"n-{one[:4] if dice.random() < 0.9 else 'same'}", "uuid": self.spelled(one)}
        renamed: dict[str, Any] = {"name": f"n-{one[:4]}"}
        if version >= (1, 14) and dice.random() < 0.6:
            made["parent_provider_uuid"] = parent  # type: ignore[assignment]
            renamed["parent_provider_uuid"] = parent
        traits = {
            "traits": dice.sample(TRAITS[:4] if dice.random() < 0.95 else TRAITS, 2),
            "resource_provider_generation": self.generation(one),
        }
        gathered: Any = dice.sample(self.aggregates, dice.randint(0, 2))
        if version >= (1, 19):
            gathered = {"aggregates": gathered, "resource_provider_generation": self.generation(one)}
        post = {each: self.consumer(each, version, empty=0.3) for each in dice.sample(self.consumers, 2)}
        reshaped = {
            "inventories": {each: self.inventories(each, sound=True) for each in dice.sample(self.providers, 1)},
            "allocations": {each: self.consumer(each, version) for each in dice.sample(self.consumers, 1)},
        }
        stocked = self.inventory() | {"resource_provider_generation": self.generation(one)}
        resource = dice.choice(CLASSES)
        weighed: list[tuple[int, Request]] = [
            (10, ("POST", "/resource_providers", made)),
            (3, ("PUT", at, renamed)),
            (2, ("DELETE", at, None)),
            (12, ("PUT", f"{at}/inventories", self.inventories(one))),
            (3, ("POST", f"{at}/inventories", self.inventory() | {"resource_class": resource})),
            (3, ("PUT", f"{at}/inventories/{resource}", stocked)),
            (2, ("DELETE", f"{at}/inventories/{resource}", None)),
            (1, ("DELETE", f"{at}/inventories", None)),
            (5, ("PUT", f"{at}/traits", traits)),
            (1, ("DELETE", f"{at}/traits", None)),
            (4, ("PUT", f"{at}/aggregates", gathered)),
            (14, ("PUT", f"/allocations/{consumer}", self.consumer(consumer, version))),
            (4, ("POST", "/allocations", post)),
            (2, ("DELETE", f"/allocations/{consumer}", None)),
            (2, ("POST", "/reshaper", reshaped)),
            (1, ("PUT", "/resource_classes/CUSTOM_TIDE", None)),
            (1, ("DELETE", "/resource_classes/CUSTOM_TIDE", None)),
            (1, ("PUT", "/traits/CUSTOM_BLUE", None)),
            (1, ("DELETE", "/traits/CUSTOM_BLUE", None)),
            (14, ("GET", "/allocation_candidates?" + self.query(), None)),
            (3, ("GET", "/resource_providers?" + self.query(), None)),
            (1, ("GET", f"/resource_providers?in_tree={self.spelled(one)}", None)),
            (1, ("GET", f"/resource_providers?uuid={self.spelled(one)}", None)),
            *((1, ("GET", at + rest, None)) for rest in ("", "/inventories", "/usages", "/traits", "/aggregates", "/allocations")),
            (1, ("GET", f"{at}/inventories/{resource}", None)),
            (2, ("GET", f"/allocations/{consumer}", None)),
            (1, ("GET", f"/usages?project_id={dice.choice(['p1', 'p2'])}", None)),
            (1, ("GET", "/usages?project_id=p1&consumer_type=all", None)),
            (1, ("GET", "/traits?name=startswith:CUSTOM", None)),
        ]  # fmt: skip
        if self.generations.keys().isdisjoint(self.providers):
            return weighed[0][1]
        return dice.choices([request for _, request in weighed], [weight for weight, _ in weighed])[0]


def plain(value: Any) -> Any:
    """Without order, and without what cannot be equal."""
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value) if key not in ("request_id", "detail")}
    if isinstance(value, list):
        return sorted((plain(each) for each in value), key=repr)
    return value


def shown(reply: httpx.Response) -> dict[str, Any]:
    headers = {name: reply.headers.get(name) for name in HEADERS}
    headers["content-type"] = (headers["content-type"] or "").split(";")[0]
    headers["vary"] = (headers["vary"] or "").lower() if reply.is_success else ""  # ours says it with errors too
    if reply.status_code == 405:
        headers["allow"] = None  # ours names the methods at every version
    location = reply.headers.get("location")
    body = plain(reply.json()) if reply.content and headers["content-type"] == "application/json" else reply.text
    return {
        "status": reply.status_code,
        "body": body,
        "headers": headers,
        "modified": reply.request.method == "GET" and "last-modified" in reply.headers,
        "location": None if location is None else httpx.URL(location).path,
    }


@pytest.fixture
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The real one's URL and ours."""
    ours = tmp_path_factory.mktemp("ours")
    words = ("placement", "--auth-strategy", "noauth2", "--data-dir", str(ours))
    with real_placement_alone(tmp_path_factory.mktemp("real") / "placement") as real, moorage_process(*words) as url:
        yield real, url


@pytest.mark.parametrize("seed", SEEDS)
def test_streams(both: tuple[str, str], seed: int) -> None:
    stream = Stream(seed)
    roles = {"X-Auth-Token": "admin", "X-Roles": "admin,service"}
    with httpx.Client(base_url=both[0], headers=roles) as real, httpx.Client(base_url=both[1], headers=roles) as ours:
        for step in range(STEPS):
            said = stream.dice.choice(VERSIONS)
            version = (1, 39) if said == "latest" else (1, int(said.split(".")[1]))
            method, path, body = stream.draw(version)
            headers = {"OpenStack-API-Version": f"placement {said}"}
            one, other = (each.request(method, path, json=body, headers=headers) for each in (real, ours))
            where = f"seed {seed}, step {step}: {method} {path} at {said}: {body}"
            assert shown(other) == shown(one), f"{where}\nreal: {one.text}\nours: {other.text}"
            if method != "GET":
                _learn(stream, real)


def test_the_malformed(both: tuple[str, str]) -> None:
    """The same refusals; where the real one fails (500), ours refuses or finds nothing."""
    known = {"X-Auth-Token": "admin", "X-Roles": "admin,service", "OpenStack-API-Version": "placement 1.39"}
    with httpx.Client(base_url=both[0], headers=known) as real, httpx.Client(base_url=both[1], headers=known) as ours:
        for each in (real, ours):
            each.post("/resource_providers", json={"name": "a", "uuid": PROVIDER}).raise_for_status()
            stock = {"inventories": {"VCPU": {"total": 8}}, "resource_provider_generation": 0}
            each.put(f"{AT}/inventories", json=stock).raise_for_status()
        for asked in malformed():
            one, other = (
                each.request(asked.method, asked.path, content=asked.body, headers=asked.headers)
                for each in (real, ours)
            )
            where = f"{asked.said}\nreal: {one.text}\nours: {other.text}"
            if one.status_code < 500:
                assert shown(other) == shown(one), where
            else:
                assert other.status_code < 500, where


def _learn(stream: Stream, client: httpx.Client) -> None:
    latest = {"OpenStack-API-Version": "placement 1.39"}
    listed = client.get("/resource_providers", headers=latest).json()["resource_providers"]
    stream.generations = {one["uuid"]: one["generation"] for one in listed}
    for consumer in stream.consumers:
        stream.held[consumer] = client.get(f"/allocations/{consumer}", headers=latest).json().get("consumer_generation")
