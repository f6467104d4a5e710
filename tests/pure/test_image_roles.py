"""What the account of hosts may do at the embedded image service: read every image, and fill those that wait."""

import pytest

from moorage.model.principal import Principal
from moorage_embedded.image.policy import IMAGE_DATA, ImageCaller

OTHERS = "another-project"


@pytest.mark.parametrize("action", ["upload_image", "modify_image"])
def test_a_host_may_fill_images_of_every_project(action: str) -> None:
    assert ImageCaller(Principal(user="u", project="service", roles=(IMAGE_DATA,))).changes(OTHERS, action)


@pytest.mark.parametrize(
    "action", ["", "delete_image", "deactivate", "reactivate", "delete_image_location", "add_member"]
)
def test_a_host_may_do_nothing_else_to_images(action: str) -> None:
    host = ImageCaller(Principal(user="u", project="service", roles=(IMAGE_DATA,)))
    assert not host.changes(OTHERS, action)
    assert not host.changes("service", action), "nor to those of its own project"
    assert (host.reader, host.everywhere, host.member, host.admin) == (True, True, False, False)


@pytest.mark.parametrize(("roles", "may"), [(("member",), False), (("service",), False), (("admin",), True)])
def test_other_users_are_judged_by_the_normal_policy(roles: tuple[str, ...], may: bool) -> None:
    who = ImageCaller(Principal(user="u", project="mine", roles=roles))
    assert who.changes(OTHERS, "upload_image") is may
    assert who.changes("mine", "upload_image") is ("service" not in roles)
