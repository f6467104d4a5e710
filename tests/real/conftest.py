"""The real services, for every test here."""

from moorage_testing.real_services.fixtures import *  # noqa: F403
