"""The real neighbours, for every test here."""

from moorage_testing.real_services.fixtures import *  # noqa: F403
