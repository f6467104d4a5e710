"""What operators are told about limits of compute at the identity service."""

from moorage.model.errors import Unavailable
from moorage.operations.limits_elsewhere import KEPT_S, NAMES_SAID_MAX, LimitsElsewhere, limit_warnings


class Identity:
    def __init__(self, *names: str) -> None:
        self.names, self.asked, self.out = names, 0, False

    async def limited_resources(self, service: str) -> tuple[str, ...]:
        assert service == "compute"
        self.asked += 1
        if self.out:
            raise Unavailable("the identity service is out")
        return self.names


async def test_nothing_is_said_without_such_limits() -> None:
    assert await limit_warnings(Identity().limited_resources) == ()


async def test_the_resources_are_named_and_their_number_has_a_limit() -> None:
    (said,) = await limit_warnings(Identity("class:VCPU", "servers").limited_resources)
    assert "(class:VCPU, servers)" in said
    assert "change nothing" in said
    many = Identity(*(f"class:CUSTOM_{number}" for number in range(NAMES_SAID_MAX + 1)))
    (said,) = await limit_warnings(many.limited_resources)
    assert f"CUSTOM_{NAMES_SAID_MAX - 1} ...)" in said


async def test_who_could_not_ask_says_so() -> None:
    identity = Identity("servers")
    identity.out = True
    (said,) = await limit_warnings(identity.limited_resources)
    assert said.endswith("could not be asked: the identity service is out")


async def test_the_identity_service_is_asked_once_in_a_minute() -> None:
    identity, now = Identity(), [0.0]
    elsewhere = LimitsElsewhere(identity.limited_resources, lambda: now[0])
    assert [await elsewhere.warnings() for _ in range(3)] == [(), (), ()]
    assert identity.asked == 1
    identity.names = ("servers",)
    now[0] = KEPT_S
    assert len(await elsewhere.warnings()) == 1
