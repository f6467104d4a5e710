"""What the account of hosts may do at the embedded image service: read every image, and fill those that wait."""

from typing import Any

import pytest

from moorage.model.image_ticket import FORM, Granted
from moorage.model.principal import Principal
from moorage_embedded.image.policy import IMAGE_DATA, ImageCaller

OTHERS = "another-project"


def test_a_host_fills_and_changes_nothing() -> None:
    host = ImageCaller(Principal(user="u", project="service", roles=(IMAGE_DATA,)))
    assert not host.changes(OTHERS)
    assert not host.changes("service"), "nor images of its own project"
    assert (host.fills, host.reader, host.everywhere, host.member, host.admin) == (True, True, True, False, False)


@pytest.mark.parametrize(("direction", "fills"), [("read", False), ("fill", True)])
def test_a_ticket_is_for_one_image_in_one_direction(direction: Any, fills: bool) -> None:
    host = ImageCaller.of_ticket(Granted(FORM, "image", direction, "host1", 1))
    assert (host.only, host.fills, host.member, host.admin) == ("image", fills, False, False)
    assert not host.changes(OTHERS)


@pytest.mark.parametrize(("roles", "may"), [(("member",), False), (("service",), False), (("admin",), True)])
def test_other_users_are_judged_by_the_normal_policy(roles: tuple[str, ...], may: bool) -> None:
    who = ImageCaller(Principal(user="u", project="mine", roles=roles))
    assert who.changes(OTHERS) is may
    assert who.changes("mine") is ("service" not in roles)
    assert not who.fills
