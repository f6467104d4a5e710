"""Pytest fixtures of the real services: `from moorage_testing.real_services.fixtures import *` in a conftest.

One stack serves the whole test session, whichever directory asks first.
"""

from dataclasses import dataclass

import pytest

from moorage_testing.real_services.stack import ServiceLogin, Stack, start_cinder, start_stack

__all__ = ["real_identity", "real_image", "real_network", "real_placement", "real_stack", "real_volume"]

_running: list[Stack] = []


@dataclass(frozen=True)
class RealService:
    """The address of a service, and its users (`admin`, `moorage`, `alice`, `bob`, `rita`)."""

    url: str
    identity_url: str
    logins: dict[str, ServiceLogin]
    stack: Stack

    def token(self, name: str) -> str:
        return self.stack.token(name)


@pytest.fixture(scope="session")
def real_stack(request: pytest.FixtureRequest) -> Stack:
    if not _running:
        stack = start_stack()
        _running.append(stack)
        request.config.add_cleanup(stack.stop)
        request.config.add_cleanup(_running.clear)
    return _running[0]


def _service(stack: Stack, url: str) -> RealService:
    return RealService(url, stack.identity_url, stack.logins, stack)


@pytest.fixture(scope="session")
def real_identity(real_stack: Stack) -> RealService:
    return _service(real_stack, real_stack.identity_url)


@pytest.fixture(scope="session")
def real_image(real_stack: Stack) -> RealService:
    return _service(real_stack, real_stack.image_url)


@pytest.fixture(scope="session")
def real_network(real_stack: Stack) -> RealService:
    return _service(real_stack, real_stack.network_url)


@pytest.fixture(scope="session")
def real_placement(real_stack: Stack) -> RealService:
    return _service(real_stack, real_stack.placement_url)


@pytest.fixture(scope="session")
def real_volume(real_stack: Stack) -> RealService:
    """A real Cinder; it starts with the first test that asks for it. Its API is below `url` + `/v3/{project}`."""
    start_cinder(real_stack)
    return _service(real_stack, real_stack.volume_url)
