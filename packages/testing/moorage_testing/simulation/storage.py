"""Who writes to volumes: at every moment, the guests that have each."""

from collections.abc import Iterable
from typing import Protocol

from moorage.model.guest import PowerState, VolumeDisk
from moorage.model.ids import ServerId


class Machines(Protocol):
    """The cloud, as far as this is about it."""

    def reachable(self, host: str) -> bool: ...

    def sleeps(self, machine: str) -> bool: ...

    def violated(self, what: str) -> None: ...


class Storage:
    """Called by the hosts' drivers for every change of a guest."""

    def __init__(self, cloud: Machines) -> None:
        self._cloud = cloud
        self._writers: dict[str, set[tuple[str, ServerId]]] = {}
        """Volume → the running guests that have it, by host and server."""
        self.declared_down: set[str] = set()
        """Hosts of which an administrator has said, at some time, that their guests do not run."""
        self.shared: set[str] = set()
        """Volumes that several servers may have."""

    def writes(self, host: str, server: ServerId, power: PowerState | None, volumes: Iterable[VolumeDisk]) -> None:
        """What a guest has now; power None: it is gone."""
        guest = (host, server)
        has = {each.volume for each in volumes} if power is PowerState.RUNNING else set[str]()
        for volume in [each for each, writers in self._writers.items() if guest in writers and each not in has]:
            self._writers[volume].discard(guest)
            if not self._writers[volume]:
                del self._writers[volume]
        for volume in sorted(has):
            self._writers.setdefault(volume, set()).add(guest)
        if has:
            self.check()

    def written_twice(self) -> dict[str, list[tuple[str, ServerId]]]:
        """Volume → its writers, of those with more than one on machines that are awake.

        Two guests of one server are reported elsewhere; this is about two servers.
        """
        found: dict[str, list[tuple[str, ServerId]]] = {}
        for volume, writers in self._writers.items():
            awake = sorted(each for each in writers if not self._cloud.sleeps(each[0]))
            if volume not in self.shared and len({server for _, server in awake}) > 1:
                found[volume] = awake
        return found

    def check(self) -> None:
        """No volume has two writers, whether their hosts can be reached or not (RULES §25).

        If somebody said that one of the hosts is off, its servers' volumes may go to others: until it can be reached,
        `progress.watch_volumes` waits.
        """
        for volume, writers in self.written_twice().items():
            hosts = {host for host, _ in writers}
            if all(self._cloud.reachable(host) for host in hosts) or not hosts & self.declared_down:
                self._cloud.violated(f"volume {volume} has two writers: {writers_text(writers)}")


def writers_text(writers: Iterable[tuple[str, ServerId]]) -> str:
    """For people."""
    return " and ".join(f"{server} on {host}" for host, server in writers)
