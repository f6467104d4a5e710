"""The identity and image clients' contract, against the embedded services and against real Keystone and Glance."""

import uuid

import pytest
from tests.helpers.contract_services import Ground

from moorage.model.errors import NotFound, Unauthenticated


async def test_a_token_identifies_its_user(ground: Ground) -> None:
    tenant = await ground.tenant()
    principal = await ground.identity.validate(tenant.token)
    assert (principal.project, principal.user_name, principal.project_name) == (
        tenant.project,
        tenant.user,
        tenant.user,
    )
    assert "member" in principal.roles
    assert "reader" in principal.roles  # implied by member
    assert principal.expires_at
    assert principal.service_roles == ()
    admin = await ground.identity.validate(ground.admin)
    assert "admin" in admin.roles


async def test_a_token_is_validated_once(ground: Ground) -> None:
    tenant = await ground.tenant()
    await ground.identity.validate(tenant.token)
    ground.raw_identity.calls.clear()
    await ground.identity.validate(tenant.token)
    assert not ground.raw_identity.calls


async def test_an_invalid_token_has_no_user(ground: Ground) -> None:
    for token in ("", "nonsense", "gAAAA" + "x" * 180, "x" * 20_000, "new\nline"):
        with pytest.raises(Unauthenticated):
            await ground.identity.validate(token)


async def test_a_revoked_token_is_nobodys(ground: Ground) -> None:
    tenant = await ground.tenant()
    headers = {"X-Subject-Token": tenant.token}
    await ground.raw_identity.call("DELETE", "/auth/tokens", token=tenant.token, headers=headers)
    with pytest.raises(Unauthenticated):
        await ground.identity.validate(tenant.token)


async def test_a_service_token_is_sent_with_the_users_token(ground: Ground) -> None:
    tenant = await ground.tenant()
    assert ground.raw_network.tokens is not None
    service = await ground.raw_network.tokens.get()
    principal = await ground.identity.validate(tenant.token, service)
    assert principal.project == tenant.project
    assert "service" in principal.service_roles
    unproved = await ground.identity.validate(tenant.token, "nonsense")
    assert unproved.service_roles == ()


async def test_a_revoked_service_token_is_replaced(ground: Ground) -> None:
    assert ground.raw_identity.tokens is not None
    mine = await ground.raw_identity.tokens.get()
    await ground.raw_identity.call("DELETE", "/auth/tokens", token=mine, headers={"X-Subject-Token": mine})
    tenant = await ground.tenant()
    assert (await ground.identity.validate(tenant.token)).project == tenant.project
    assert await ground.raw_identity.tokens.get() != mine


async def test_whether_a_project_exists(ground: Ground) -> None:
    tenant = await ground.tenant()
    assert await ground.identity.project_exists(tenant.project)
    assert not await ground.identity.project_exists(uuid.uuid4().hex)
    assert not await ground.identity.project_exists("../users")


async def test_an_image_is_shown_to_its_owner(ground: Ground) -> None:
    tenant, other = await ground.tenant(), await ground.tenant()
    fields = {"name": "tiny", "disk_format": "raw", "container_format": "bare", "min_disk": 2, "hw_disk_bus": "virtio"}
    made = (await ground.raw_image.call("POST", "/v2/images", token=tenant.token, body=fields)).body
    image = await ground.image.show(made["id"], tenant.token)
    assert (image.name, image.status, image.min_disk_gib, image.owner) == ("tiny", "queued", 2, tenant.project)
    assert image.properties["hw_disk_bus"] == "virtio"
    for token, wanted in ((other.token, made["id"]), (tenant.token, str(uuid.uuid4())), (tenant.token, "../images")):
        with pytest.raises(NotFound) as missing:
            await ground.image.show(wanted, token)
        assert str(missing.value) == f"Image {wanted} could not be found."
