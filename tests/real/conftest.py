"""The real services, for all tests here."""

from moorage_testing.real_services.fixtures import *  # noqa: F403
