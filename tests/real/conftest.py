"""The real neighbours, for every test here."""

from moorage.testing.real_services.fixtures import *  # noqa: F403
