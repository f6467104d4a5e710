"""Whether moves across cells may begin: not while a process runs that would show both records of such a server."""

from moorage.model.errors import Unavailable
from moorage.operations.rooms import Rooms
from moorage.store.region import processes
from moorage.store.region.processes import Process

SINCE = (0, 2, 0)
"""The first release that leaves hidden records out of lists."""
LISTS = frozenset({"api", "up"})
"""Roles that answer lists."""


async def refuse_old_processes(rooms: Rooms) -> None:
    """Raises Unavailable while an API of an earlier release runs; conductors are asked by the saga's name (`tellers.choose`).

    A row that is late or missing is a list that may show a server twice for a moment, and no more.
    """
    living = await rooms.region.read(processes.living)
    old = sorted({each.host for each in living if each.role in LISTS and not _knows(each)})
    if old:
        raise Unavailable(
            "Servers cannot move to another cell while a process of an earlier release answers requests; try again later.",
            private=f"at {', '.join(old)}",
        )


def _knows(process: Process) -> bool:
    """A release that is no number is of before releases were told, or of nobody."""
    numbers = process.release.split(".")[:3]
    return all(each.isdecimal() for each in numbers) and tuple(map(int, numbers)) >= SINCE
