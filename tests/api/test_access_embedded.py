"""Every route of the embedded services, asked without a token, without a scope, for a domain and for the system.

Roles count in a project only: a token of the system or of a domain is answered, word for word, as one that has no role at
all.  The tables of routes are walked, so that a route that comes later is asked too.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.helpers.access_matrix import HERS, PERSONAS

from moorage.model.errors import Unauthenticated
from moorage.model.principal import Principal
from moorage.sql import Database, open_database
from moorage_embedded.identity.app import Bootstrap, FirstUser, IdentitySettings, make_identity
from moorage_embedded.identity.routes import ROUTES as IDENTITY_ROUTES
from moorage_embedded.image.app import make_image
from moorage_embedded.image.routes import ROUTES as IMAGE_ROUTES
from moorage_embedded.network.app import make_network
from moorage_embedded.network.routes import ROUTES as NETWORK_ROUTES
from moorage_embedded.volume.app import make_volume
from moorage_embedded.volume.routes import ROUTES as VOLUME_ROUTES
from moorage_testing.compute_app import token

AN_ID = "0f0e0d0c-0000-4000-8000-000000000001"
NOBODY = Principal("1" * 32)
BODIES: dict[str, Any] = {
    "images": {"name": "i", "container_format": "bare", "disk_format": "raw"},
    "volumes": {"volume": {"size": 1}},
    "networks": {"network": {"name": "n"}},
    "ports": {"port": {"network_id": AN_ID}},
    "quotas/{id}": {"quota": {"port": 1}},
}
NAME = re.compile(r"\{\w+\}")
MOVING = re.compile(r'req-[0-9a-f-]{36}|\d{4}-\d\d-\d\dT[\d:.]+Z?|"id":"[0-9a-f-]{36}"')
"""What differs between two answers that say the same."""


def asked(prefix: str, routes: Any) -> Iterator[tuple[str, str]]:
    for path, verbs in routes.items():
        yield from ((method, f"{prefix}/{re.sub(NAME, AN_ID, path)}") for method in verbs)


ROUTES = {
    "image": sorted(asked("/v2", IMAGE_ROUTES)),
    "network": sorted(asked("/v2.0", NETWORK_ROUTES)),
    "volume": sorted(asked("/v3", VOLUME_ROUTES)),
}


async def validate(sent: str) -> Principal:
    try:
        return msgspec.json.decode(sent, type=Principal)
    except msgspec.DecodeError as failure:
        raise Unauthenticated("no such token") from failure


@asynccontextmanager
async def opened(service: str, directory: Path) -> AsyncIterator[httpx.AsyncClient]:
    """One service over a database of its own."""
    async with AsyncExitStack() as stack:
        database: Database = await open_database(f"sqlite:///{directory}/it.db", name=service, durability="process")
        stack.push_async_callback(database.close)
        url = f"http://{service}"
        made: Any
        if service == "image":
            made = make_image(database, files=directory / "files", validate_token=validate, public_url=url)
        elif service == "network":
            made = make_network(database, public_url=url, validate_token=validate)
        else:
            made = make_volume(database, files=directory / "files", validate_token=validate, public_url=url)
        await made.start()
        if service != "image":
            stack.push_async_callback(made.stop)
        http = httpx.AsyncClient(transport=httpx.ASGITransport(made.app), base_url=url)
        yield await stack.enter_async_context(http)


def body_of(method: str, path: str) -> Any:
    if method not in {"POST", "PUT", "PATCH"}:
        return None
    known = path.split("/", 2)[-1].replace(AN_ID, "{id}")
    noun = known.split("/")[0].rstrip("s").replace("-", "_")
    return BODIES.get(known, {noun: {"name": "x"}})


async def ask(http: httpx.AsyncClient, method: str, path: str, by: Principal | None) -> tuple[int, str]:
    headers = {} if by is None else {"X-Auth-Token": token(by)}
    answer = await http.request(method, path, json=body_of(method, path), headers=headers)
    return answer.status_code, MOVING.sub("-", answer.text)


@pytest.mark.parametrize("service", ROUTES)
async def test_requests_without_a_token_are_refused(service: str, tmp_path: Path) -> None:
    async with opened(service, tmp_path) as http:
        answers = {f"{method} {path}": (await ask(http, method, path, None))[0] for method, path in ROUTES[service]}
        assert {key: status for key, status in answers.items() if status != 401} == {}


@pytest.mark.parametrize("service", ROUTES)
async def test_roles_beyond_projects_do_not_count(service: str, tmp_path: Path) -> None:
    differing = []
    async with opened(service, tmp_path) as http:
        for method, path in ROUTES[service]:
            nobody = await ask(http, method, path, msgspec.structs.replace(NOBODY, user="n" * 32))
            for persona in ("system", "domain", "unscoped"):
                told = await ask(http, method, path, PERSONAS[persona])
                if told != nobody:
                    differing.append((persona, method, path, told, nobody))
            if method != "GET" and nobody[0] < 400:
                differing.append(("nobody", method, path, nobody, (403, "should be refused")))
    assert differing == [], "\n".join(map(str, differing))


MADE: dict[str, list[tuple[str, Any, str | None]]] = {
    "image": [("/v2/images", {"name": "hers", "container_format": "bare", "disk_format": "raw"}, None)],
    "network": [
        ("/v2.0/networks", {"network": {"name": "hers"}}, "network"),
        ("/v2.0/routers", {"router": {"name": "hers"}}, "router"),
        ("/v2.0/security-groups", {"security_group": {"name": "hers"}}, "security_group"),
    ],
    "volume": [("/v3/volumes", {"volume": {"size": 1, "name": "hers"}}, "volume")],
}


@pytest.mark.parametrize("service", MADE)
async def test_a_server_is_hidden_from_another_project(service: str, tmp_path: Path) -> None:
    """Nor do the administrators of a domain or of the system: what is there is answered as what never was."""
    async with opened(service, tmp_path) as http:
        for path, body, noun in MADE[service]:
            member = PERSONAS["member"]
            assert member is not None
            assert member.project == HERS
            answer = await http.post(path, json=body, headers={"X-Auth-Token": token(member)})
            assert answer.status_code in {201, 202}, answer.text
            id = (answer.json() if noun is None else answer.json()[noun])["id"]
            for persona in ("other", "system", "domain", "unscoped"):
                told = await ask(http, "GET", f"{path}/{id}", PERSONAS[persona])
                never = await ask(http, "GET", f"{path}/{AN_ID}", PERSONAS[persona])
                assert told[0] in {403, 404}
                assert (told[0], told[1].replace(id, "ID")) == (never[0], never[1].replace(AN_ID, "ID")), persona
                listed = await http.get(path, headers={"X-Auth-Token": token(PERSONAS[persona] or NOBODY)})
                assert id not in listed.text, persona


# ------------------------------------------------------------------------------------------------------ identity


PUBLIC = {"/v3/auth/tokens", "/v3/ec2tokens", "/v3/s3tokens", f"/v3/users/{AN_ID}/password"}
"""Asked by who has no token yet, or by a service for somebody else."""


TOLD = {
    "GET /v3/auth/domains",
    "GET /v3/auth/projects",
    "GET /v3/auth/system",
    "GET /v3/credentials",
    "GET /v3/limits",
    "GET /v3/limits/model",
    "GET /v3/regions",
    "GET /v3/registered_limits",
}
"""What a user with no role anywhere is told: of themselves, and what everybody is told."""


async def test_identity_refuses_anonymous_requests_and_limits_plain_users(tmp_path: Path) -> None:
    first = Bootstrap(
        users=(FirstUser("admin", "secret", (("admin", "admin"),)), FirstUser("ann", "pw", ())), services=()
    )
    database = await open_database(f"sqlite:///{tmp_path}/it.db", name="identity", durability="process")
    service = make_identity(
        database,
        public_url="http://identity/v3",
        bootstrap=first,
        key=b"k" * 32,
        settings=IdentitySettings(password_rounds=4),
    )
    await service.start()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(service.app), base_url="http://identity") as http:
        user = {"name": "ann", "password": "pw", "domain": {"id": "default"}}
        auth = {"identity": {"methods": ["password"], "password": {"user": user}}}
        issued = await http.post("/v3/auth/tokens", json={"auth": auth})
        assert issued.status_code == 201, issued.text
        through = set()
        for path, verbs in IDENTITY_ROUTES.items():
            url = f"/v3/{NAME.sub(AN_ID, path)}"
            for method in sorted(verbs):
                if url not in PUBLIC or method != "POST":
                    bare = await http.request(method, url, json={})
                    assert bare.status_code == 401, (method, url, bare.text)
                told = await http.request(
                    method, url, json={}, headers={"X-Auth-Token": issued.headers["x-subject-token"]}
                )
                if told.status_code < 400:
                    through.add(f"{method} /v3/{path}")
    service.close()
    await database.close()
    assert through == TOLD, sorted(through ^ TOLD)
