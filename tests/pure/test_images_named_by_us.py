"""Names that Moorage gives to images itself."""

import msgspec

from moorage.operations.steps.snapshot_image import name_of
from moorage_testing.region_fixture import a_server


def test_characters_that_an_image_service_refuses_are_replaced() -> None:
    """A server's name may have them: it is shelved, and moved to another cell, all the same."""
    server = msgspec.structs.replace(a_server(), name="rocket \N{ROCKET}")
    assert name_of(server, "shelved") == "rocket \N{REPLACEMENT CHARACTER}-shelved"
    assert name_of(msgspec.structs.replace(server, name="n" * 255), "shelved") == "n" * 247 + "-shelved"
