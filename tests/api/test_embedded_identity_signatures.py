"""The embedded identity service: requests that are signed with an EC2 credential, and what acts for a user within limits."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.api.test_embedded_identity_people import Cloud, cloud, with_password

__all__ = ["cloud"]


class Owner:
    """A user with the role member on the project admin, and a pair of keys for it."""

    def __init__(self, cloud: Cloud, user: str, project: str, token: str, pair: dict[str, Any]) -> None:
        self.cloud, self.user, self.project, self.token, self.pair = cloud, user, project, token, pair

    def said(self, at: str = "", **params: Any) -> dict[str, Any]:
        """A request, signed by version 2."""
        query = {
            "AWSAccessKeyId": self.pair["access"],
            "SignatureVersion": "2",
            "SignatureMethod": "HmacSHA256",
        } | params
        query |= {"Timestamp": at} if at else {}
        text = "POST\nheat:8000\n/v1/signal/a b\n" + "&".join(f"{k}={_quoted(query[k])}" for k in sorted(query))
        signature = base64.b64encode(hmac.digest(self.pair["secret"].encode(), text.encode(), "sha256")).decode()
        return {"access": self.pair["access"], "signature": signature, "host": "heat:8000", "verb": "POST",
                "path": "/v1/signal/a b", "params": query, "headers": {}, "body_hash": ""}  # fmt: skip

    async def exchange(
        self, said: Any, path: str = "/ec2tokens", by: str | None = None, key: str = "credentials"
    ) -> Any:
        return await self.cloud.ask("POST", path, *([] if by is None else [by]), json={key: said})


def _quoted(value: str) -> str:
    return "".join(c if c.isalnum() or c in "-_.~" else f"%{ord(c):02X}" for c in value)


@pytest.fixture
async def owner(cloud: Cloud) -> Owner:
    project = (await cloud.ask("GET", "/projects?name=admin")).json()["projects"][0]["id"]
    user = (await cloud.made("user", name="u", password="pw"))["id"]
    await cloud.ask("PUT", f"/projects/{project}/users/{user}/roles/{await cloud.role('member')}")
    issued = await cloud.login(with_password(user, "pw"), {"project": {"id": project}})
    token = issued.headers["x-subject-token"]
    made = await cloud.ask("POST", f"/users/{user}/credentials/OS-EC2", token, json={"tenant_id": project})
    return Owner(cloud, user, project, token, made.json()["credential"])


async def test_a_signature_is_exchanged_for_a_token(owner: Owner) -> None:
    for key in ("credential", "ec2Credentials"):
        assert (await owner.exchange(owner.said(Action="Wait & see"), key=key)).status_code == 200
    answer = await owner.exchange(owner.said())
    assert answer.status_code == 200, answer.text
    told = answer.json()["token"]
    assert (told["user"]["id"], told["project"]["id"], told["methods"]) == (
        owner.user,
        owner.project,
        ["ec2credential"],
    )
    assert [role["name"] for role in told["roles"]] == ["member", "reader"]
    token = answer.headers["x-subject-token"]
    shown = await owner.cloud.ask("GET", f"/projects/{owner.project}", token)
    assert shown.status_code == 200
    wrong = owner.said() | {"signature": "no"}
    assert (await owner.exchange(wrong)).status_code == 401
    assert (await owner.exchange(owner.said() | {"access": "nobody's"})).status_code == 404
    assert (await owner.exchange(owner.said(), by=owner.token)).status_code == 403  # services ask, and administrators
    assert (await owner.exchange(owner.said(), by="")).status_code == 401


@pytest.mark.parametrize(
    "change",
    [
        {"params": None}, {"params": {"SignatureVersion": "3"}}, {"params": {}}, {"headers": 5}, {"host": None},
        {"signature": 7}, {"path": {}}, {"params": {"SignatureVersion": "0"}}, {"verb": "GET"}, {"access": 5},
    ],
)  # fmt: skip
async def test_malformed_requests_are_unauthenticated(owner: Owner, change: dict[str, Any]) -> None:
    assert (await owner.exchange(owner.said() | change)).status_code == 401
    assert (await owner.cloud.ask("POST", "/ec2tokens", json={})).status_code == 400


async def test_a_signature_is_good_for_a_quarter_of_an_hour(owner: Owner) -> None:
    now = datetime.now(UTC)
    for minutes, status in ((0, 200), (14, 200), (16, 401)):
        at = (now - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert (await owner.exchange(owner.said(at))).status_code == status
    assert (await owner.exchange(owner.said("yesterday"))).status_code == 401


async def test_other_versions_of_signatures(owner: Owner) -> None:
    secret, access = owner.pair["secret"], owner.pair["access"]

    def based(text: str) -> str:
        return base64.b64encode(hmac.digest(secret.encode(), text.encode(), "sha1")).decode()

    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    rest: dict[str, Any] = {"access": access, "host": "h", "verb": "GET", "path": "/", "headers": {}, "body_hash": ""}
    zero = {"SignatureVersion": "0", "Action": "A", "Timestamp": at}
    one = {"SignatureVersion": "1", "b": "2", "A": 1}
    for params, signature in ((zero, based("A" + at)), (one, based("A1b2SignatureVersion1"))):
        assert (await owner.exchange(rest | {"params": params, "signature": signature})).status_code == 200
        assert (await owner.exchange(rest | {"params": params, "signature": based("")})).status_code == 401
    day = datetime.now(UTC).strftime("%Y%m%d")
    scope, stamp = f"{day}/RegionOne/ec2/aws4_request", datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {"Host": "h:1", "X-Amz-Date": stamp}
    asked = f"GET\n/\nb=2\nhost:h:1\nx-amz-date:{stamp}\n\nhost;x-amz-date\nHASH"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(asked.encode()).hexdigest()}"
    signature = hmac.digest(_key(secret, scope), text.encode(), "sha256").hex()
    headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders=host;x-amz-date, Signature={signature}"
    )
    four = rest | {"params": {"b": "2"}, "headers": headers, "body_hash": "HASH", "signature": signature}
    assert (await owner.exchange(four)).status_code == 200
    assert (await owner.exchange(four | {"body_hash": "other"})).status_code == 401


def _key(secret: str, scope: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


async def test_signatures_of_the_object_store(owner: Owner) -> None:
    secret = owner.pair["secret"]
    text = b"GET\n\n\nThu, 01 Jan 2026\n/bucket"
    one = base64.b64encode(hmac.digest(secret.encode(), text, "sha1")).decode()
    scope = "20260101/RegionOne/s3/aws4_request"
    later = f"AWS4-HMAC-SHA256\n20260101T000000Z\n{scope}\nHASH".encode()
    four = hmac.digest(_key(secret, scope), later, "sha256").hex()
    said: dict[str, Any] = {}
    for signed, signature in ((text, one), (later, four)):
        said = {
            "access": owner.pair["access"],
            "token": base64.urlsafe_b64encode(signed).decode(),
            "signature": signature,
        }
        answer = await owner.exchange(said, "/s3tokens")
        assert (answer.status_code, "x-subject-token" in answer.headers) == (200, False), answer.text
        assert answer.json()["token"]["project"]["id"] == owner.project
        assert (await owner.exchange(said | {"signature": "no"}, "/s3tokens")).status_code == 401
        assert (await owner.exchange(said, "/s3tokens", by=owner.token)).status_code == 403
    strange = base64.urlsafe_b64encode(later.replace(b"/s3/", b"/sqs/")).decode()
    assert (await owner.exchange(said | {"token": strange}, "/s3tokens")).status_code == 401


async def _kept(owner: Owner, **more: Any) -> None:
    """The owner's pair with what limits it, and another access key."""
    owner.pair = {"access": f"other{len(more)}", "secret": "s"}
    blob = json.dumps(owner.pair | more)
    body = {"credential": {"user_id": owner.user, "type": "ec2", "project_id": owner.project, "blob": blob}}
    assert (await owner.cloud.ask("POST", "/credentials", json=body)).status_code == 201


async def test_a_credential_within_limits_gives_a_token_within_them(owner: Owner) -> None:
    body = {"application_credential": {"name": "a", "roles": [{"name": "reader"}]}}
    path = f"/users/{owner.user}/application_credentials"
    lent = (await owner.cloud.ask("POST", path, owner.token, json=body)).json()["application_credential"]
    await _kept(owner, app_cred_id=lent["id"])
    told = (await owner.exchange(owner.said())).json()["token"]
    assert [role["name"] for role in told["roles"]] == ["reader"]
    assert told["application_credential"]["id"] == lent["id"]
    kept = (await owner.cloud.ask("GET", "/credentials?type=ec2", owner.token)).json()["credentials"]
    mine = next(each for each in kept if "app_cred_id" in each["blob"])
    free = {"credential": {"blob": json.dumps(owner.pair)}}
    assert (await owner.cloud.ask("PATCH", f"/credentials/{mine['id']}", owner.token, json=free)).status_code == 400
    assert (await owner.cloud.ask("DELETE", f"{path}/{lent['id']}", owner.token)).status_code == 204
    assert (await owner.exchange(owner.said())).status_code == 401


async def test_a_credential_of_a_trust_gives_a_token_of_it(owner: Owner) -> None:
    admin = (await owner.cloud.ask("GET", "/users?name=admin")).json()["users"][0]["id"]
    said = {"trustor_user_id": admin, "trustee_user_id": owner.user, "project_id": owner.project,
            "impersonation": False, "roles": [{"name": "reader"}]}  # fmt: skip
    trust = (await owner.cloud.ask("POST", "/OS-TRUST/trusts", json={"trust": said})).json()["trust"]
    await _kept(owner, trust_id=trust["id"])
    told = (await owner.exchange(owner.said())).json()["token"]
    assert told["OS-TRUST:trust"]["id"] == trust["id"]
    assert ([role["name"] for role in told["roles"]], told["user"]["id"]) == (["reader"], owner.user)
    other = (await owner.cloud.made("user", name="w", password="pw"))["id"]
    said |= {"trustee_user_id": other}
    theirs = (await owner.cloud.ask("POST", "/OS-TRUST/trusts", json={"trust": said})).json()["trust"]
    await _kept(owner, trust_id=theirs["id"], more=1)
    assert (await owner.exchange(owner.said())).status_code == 401  # of another trustee


async def _delegates(owner: Owner) -> dict[str, str]:
    """Tokens that act for the owner within limits."""
    cloud, user = owner.cloud, owner.user
    other = (await cloud.made("user", name="v", password="pw"))["id"]
    found = {"signed": (await owner.exchange(owner.said())).headers["x-subject-token"]}
    for name, unrestricted in (("small", False), ("great", True)):
        body = {"application_credential": {"name": name, "unrestricted": unrestricted}}
        path = f"/users/{user}/application_credentials"
        made = (await cloud.ask("POST", path, owner.token, json=body)).json()["application_credential"]
        lent = {"id": made["id"], "secret": made["secret"]}
        answer = await cloud.login({"methods": ["application_credential"], "application_credential": lent})
        found[name] = answer.headers["x-subject-token"]
    said = {"trustor_user_id": user, "trustee_user_id": other, "project_id": owner.project, "impersonation": True,
            "roles": [{"name": "reader"}]}  # fmt: skip
    trust = (await cloud.ask("POST", "/OS-TRUST/trusts", owner.token, json={"trust": said})).json()["trust"]["id"]
    answer = await cloud.login(with_password(other, "pw"), {"OS-TRUST:trust": {"id": trust}})
    found["trust"] = answer.headers["x-subject-token"]
    return found


async def test_whoever_acts_within_limits_gets_no_secrets(owner: Owner) -> None:
    cloud, user = owner.cloud, owner.user
    (kept,) = (await cloud.ask("GET", "/credentials", owner.token)).json()["credentials"]
    ec2, lent = f"/users/{user}/credentials/OS-EC2", f"/users/{user}/application_credentials"
    blob = json.dumps({"access": "mine", "secret": "s"})
    new = {"credential": {"user_id": user, "type": "ec2", "project_id": owner.project, "blob": blob}}
    for kind, token in (await _delegates(owner)).items():
        listed = await cloud.ask("GET", "/credentials", token)
        assert (listed.status_code, listed.json()["credentials"]) == (200, []), kind
        for method, path, body in (
            ("POST", "/credentials", new),
            ("GET", f"/credentials/{kept['id']}", None),
            ("PATCH", f"/credentials/{kept['id']}", {"credential": {"blob": blob}}),
            ("DELETE", f"/credentials/{kept['id']}", None),
            ("POST", ec2, {"tenant_id": owner.project}),
            ("GET", ec2, None),
            ("GET", f"{ec2}/{owner.pair['access']}", None),
            ("DELETE", f"{ec2}/{owner.pair['access']}", None),
        ):
            assert (await cloud.ask(method, path, token, json=body)).status_code == 403, (kind, method, path)
        more = {"application_credential": {"name": f"by {kind}"}}
        made, seen = await cloud.ask("POST", lent, token, json=more), await cloud.ask("GET", lent, token)
        rules = await cloud.ask("GET", f"/users/{user}/access_rules", token)
        expected = {"small": (403, 200, 200), "great": (201, 200, 200)}.get(kind, (403, 403, 403))
        assert (made.status_code, seen.status_code, rules.status_code) == expected, kind
        again = await cloud.login({"methods": ["token"], "token": {"id": token}})
        assert again.status_code == 403, kind


async def test_an_application_credential_joined_with_another_method_is_refused(owner: Owner) -> None:
    """The other method would take its limits away."""
    body = {"application_credential": {"name": "a", "roles": [{"name": "reader"}]}}
    path = f"/users/{owner.user}/application_credentials"
    made = (await owner.cloud.ask("POST", path, owner.token, json=body)).json()["application_credential"]
    parts = {
        "application_credential": {"id": made["id"], "secret": made["secret"]},
        "token": {"id": owner.token},
        "password": with_password(owner.user, "pw")["password"],
    }
    for methods in (["application_credential", "token"], ["token", "application_credential"],
                    ["application_credential", "password"], ["password", "application_credential"]):  # fmt: skip
        answer = await owner.cloud.login({"methods": methods} | parts)
        assert answer.status_code == 401, methods
    twice = ["application_credential", "application_credential"]
    assert (await owner.cloud.login({"methods": twice} | parts)).status_code == 201
