"""Ids minted from randomness that is fetched for many at once."""

import subprocess
import sys
import uuid

from moorage.model.ids import new_uuid


def test_an_id_is_a_random_uuid_in_canonical_form() -> None:
    for _ in range(500):
        minted = new_uuid()
        parsed = uuid.UUID(minted)
        assert str(parsed) == minted
        assert parsed.version == 4
        assert parsed.variant == uuid.RFC_4122


def test_no_two_are_equal() -> None:
    assert len({new_uuid() for _ in range(10_000)}) == 10_000


FORKING = """
import os
from moorage.model.ids import new_uuid

new_uuid()
reading, writing = os.pipe()
if (child := os.fork()) == 0:
    os.write(writing, new_uuid().encode())
    os._exit(0)
os.waitpid(child, 0)
told = os.read(reading, 36).decode()
assert len(told) == 36
assert told not in {new_uuid() for _ in range(100)}
"""


def test_a_child_does_not_mint_its_parents_ids() -> None:
    """In a process of its own: libraries that other tests bring in do not like to be forked."""
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=60)
