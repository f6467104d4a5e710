"""The real neighbours, for every test here."""

from moorage.testing.peers.fixtures import *  # noqa: F403
