"""Key pairs, at the versions where something about them changed."""

from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from moorage_testing.compute_app import ADMIN, MEMBER, ApiClient

PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBPvpyYTIKHhKDGDB8G1DPrYZ4mNf0pYNLtkuSJUsUsv somebody"


async def make(cloud: ApiClient, at: str = "latest", by: Any = MEMBER, **fields: Any) -> Any:
    return await cloud.ask("POST", "/os-keypairs", {"keypair": {"name": "mine", **fields}}, at=at, by=by)


async def test_importing(cloud: ApiClient) -> None:
    made = await make(cloud, public_key=PUBLIC)
    assert made.status_code == 201
    pair = made.json()["keypair"]
    assert pair | {"fingerprint": ""} == {
        "name": "mine", "public_key": PUBLIC, "fingerprint": "", "type": "ssh", "user_id": MEMBER.user,
    }  # fmt: skip
    assert len(pair["fingerprint"].split(":")) == 16
    shown = (await cloud.get("/os-keypairs/mine", at="2.1", by=MEMBER)).json()["keypair"]
    assert sorted(shown) == [
        "created_at", "deleted", "deleted_at", "fingerprint", "id", "name", "public_key", "updated_at", "user_id",
    ]  # fmt: skip
    assert (await make(cloud, public_key=PUBLIC)).status_code == 409
    assert (await make(cloud, name="bad", public_key="ssh-rsa nonsense")).status_code == 400


async def test_before_2_2_keypairs_have_no_type(cloud: ApiClient) -> None:
    assert (await make(cloud, at="2.1", type="ssh", public_key=PUBLIC)).status_code == 400
    made = await make(cloud, at="2.1", public_key=PUBLIC)
    assert (made.status_code, "type" in made.json()["keypair"]) == (200, False)
    listed = await cloud.get("/os-keypairs", at="2.1", by=MEMBER)
    assert sorted(listed.json()["keypairs"][0]["keypair"]) == ["fingerprint", "name", "public_key"]
    listed = await cloud.get("/os-keypairs", at="2.2", by=MEMBER)
    assert listed.json()["keypairs"][0]["keypair"]["type"] == "ssh"
    assert (await cloud.ask("DELETE", "/os-keypairs/mine", at="2.1", by=MEMBER)).status_code == 202
    assert (await cloud.ask("DELETE", "/os-keypairs/mine", at="2.2", by=MEMBER)).status_code == 404


async def test_keys_are_generated_only_for_older_versions(cloud: ApiClient) -> None:
    made = await make(cloud, at="2.91")
    pair = made.json()["keypair"]
    key = serialization.load_pem_private_key(pair["private_key"].encode(), None)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    assert pair["public_key"].startswith(public.decode())
    refused = await make(cloud, at="2.92", name="other")
    assert "'public_key' is a required property" in refused.json()["badRequest"]["message"]
    assert "private_key" not in (await cloud.get("/os-keypairs/mine", by=MEMBER)).json()["keypair"]


async def test_certificates(cloud: ApiClient) -> None:
    pair = (await make(cloud, at="2.2", type="x509")).json()["keypair"]
    certificate = x509.load_pem_x509_certificate(pair["public_key"].encode())
    assert MEMBER.user in certificate.subject.rfc4514_string()
    again = await make(cloud, name="copy", type="x509", public_key=pair["public_key"])
    assert again.json()["keypair"]["fingerprint"] == pair["fingerprint"]


@pytest.mark.parametrize(
    ("name", "at", "status"), [("a@b.c", "2.91", 400), ("a@b.c", "2.92", 201), ("a/b", "2.92", 400)]
)
async def test_names(cloud: ApiClient, name: str, at: str, status: int) -> None:
    assert (await make(cloud, at=at, name=name, public_key=PUBLIC)).status_code == status


async def test_other_peoples_keys_are_administrators_business(cloud: ApiClient) -> None:
    assert (await make(cloud, at="2.9", by=ADMIN, user_id=MEMBER.user, public_key=PUBLIC)).status_code == 400
    assert (await make(cloud, at="2.10", by=ADMIN, user_id=MEMBER.user, public_key=PUBLIC)).status_code == 201
    assert (await make(cloud, by=MEMBER, user_id=ADMIN.user, public_key=PUBLIC)).status_code == 403
    assert (await cloud.get("/os-keypairs", at="2.10")).json()["keypairs"] == []
    mine = f"user_id={MEMBER.user}"
    assert len((await cloud.get(f"/os-keypairs?{mine}", at="2.10")).json()["keypairs"]) == 1
    assert (await cloud.get(f"/os-keypairs?{mine}", at="2.9")).json()["keypairs"] == []
    assert (await cloud.get(f"/os-keypairs/mine?user_id={ADMIN.user}", at="2.10", by=MEMBER)).status_code == 403
    assert (await cloud.ask("DELETE", f"/os-keypairs/mine?{mine}", at="2.10")).status_code == 204


async def test_pages(cloud: ApiClient) -> None:
    for name in ("a", "b", "c"):
        await make(cloud, name=name, public_key=PUBLIC)
    page = (await cloud.get("/os-keypairs?limit=2", at="2.35", by=MEMBER)).json()
    assert [each["keypair"]["name"] for each in page["keypairs"]] == ["a", "b"]
    assert page["keypairs_links"] == [{"rel": "next", "href": "http://cloud/v2.1/os-keypairs?limit=2&marker=b"}]
    rest = (await cloud.get("/os-keypairs?limit=2&marker=b", at="2.35", by=MEMBER)).json()
    assert [each["keypair"]["name"] for each in rest["keypairs"]] == ["c"]
    assert len((await cloud.get("/os-keypairs?limit=2", at="2.34", by=MEMBER)).json()["keypairs"]) == 3
    assert (await cloud.get("/os-keypairs?marker=x", at="2.35", by=MEMBER)).status_code == 400


async def test_the_number_of_keypairs_is_limited(cloud: ApiClient) -> None:
    await cloud.ask("PUT", f"/os-quota-sets/{MEMBER.project}", {"quota_set": {"key_pairs": 1}})
    assert (await make(cloud, public_key=PUBLIC)).status_code == 201
    refused = await make(cloud, name="second", public_key=PUBLIC)
    assert (refused.status_code, refused.json()["forbidden"]["message"]) == (403, "Quota exceeded, too many key pairs.")


async def test_no_key_is_generated_beyond_the_limit(cloud: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Making one takes a processor for tenths of a second."""

    async def made(*_: Any) -> tuple[str, str]:
        raise AssertionError("a key was made")

    assert (await make(cloud, at="2.91", name="a")).status_code == 201
    monkeypatch.setattr("moorage.operations.records.keypairs.generate", made)
    assert (await make(cloud, at="2.91", name="a")).status_code == 409
    await cloud.ask("PUT", f"/os-quota-sets/{MEMBER.project}", {"quota_set": {"key_pairs": 1}})
    assert (await make(cloud, at="2.91", name="b")).status_code == 403
