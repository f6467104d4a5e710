"""What users and administrators were promised: every 202, 204 and 200, to be held against the cloud."""

from dataclasses import dataclass, field


@dataclass
class HostSetting:
    """One thing that an administrator says of one host or server: what it is now, and whether a change of it may be under way."""

    value: bool
    pending: int = 0
    unsure: bool = False
    """The outcome of a change is not known: until the next one that is."""

    @property
    def certain(self) -> bool:
        return not self.pending and not self.unsure


@dataclass
class Booked:
    """One ordered server."""

    ref: int
    id: str = ""
    """Empty: it was refused, or nobody knows what became of the order."""
    delete_asked: bool = False
    deleted: bool = False
    """A delete was accepted."""
    ports: list[str] = field(default_factory=list)
    """Of the user, made for it."""
    attached: set[str] = field(default_factory=set)
    """Ports of which an attach was answered with 200."""
    root_goes: bool = False
    """It boots from a volume that is to go with it."""
    leave_asked: bool = False
    return_asked: bool = False
    """An unshelve was asked for: the image of its disk goes when it is done."""
    """Somebody asked that it leave its host (shelved): its guest may go."""
    move_asked: bool = False
    """Somebody asked that it go to another host or have another size: its guest may go from where it was."""
    reset: bool = False
    """An administrator reset its state."""
    locked: HostSetting = field(default_factory=lambda: HostSetting(False))
    restore_asked: bool = False
    """Somebody asked for it back after a delete: whether it is gone in the end depends on who was first."""
    quiesced: bool = False
    """Its volumes are copied only while its guest is still: its image says so."""
    anew: bool = False
    """Somebody asked for something that makes its guest anew, or as it was before: what was done inside of it may be gone."""
    passwords: set[str] = field(default_factory=set)
    """What its password may be: the last one that was answered 202, and those of which nobody knows whether, or when, they were set."""
    password_set: bool = False
    """One was answered 202."""
    dumps: int = 0
    """Crash dumps that were asked for, and not refused."""


@dataclass
class BookedVolume:
    """One volume of the user's."""

    ref: int
    id: str = ""
    """Empty: it is not made yet, or nobody knows."""
    size_gib: int = 1
    goes: bool = False
    """It may go with a server, or was deleted."""


@dataclass
class OrderBook:
    servers: dict[int, Booked] = field(default_factory=dict)
    volumes: dict[int, BookedVolume] = field(default_factory=dict)
    images: dict[str, int] = field(default_factory=dict)
    """Images of servers that were promised, with the server's number; no backups, which go when there are newer ones."""
    words: dict[tuple[str, str], HostSetting] = field(default_factory=dict)
    """(host, what: `disabled`, `forced_down`, `zone`, `trait`) → what was set last."""
    gone: set[str] = field(default_factory=set)
    """Volumes that somebody deleted at the volume service itself, or made snapshots of: they may be gone, or stay, whatever servers say."""
    assisted: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Snapshot → server and volume, of those that a host was to take and of which that was accepted."""
    dropped: set[str] = field(default_factory=set)
    """Of those, the ones that a host was asked to drop."""
    answered: int = 0
    refused: int = 0
    unanswered: int = 0

    def of(self, ref: int) -> Booked:
        return self.servers.setdefault(ref, Booked(ref))

    def volume(self, ref: int) -> BookedVolume:
        return self.volumes.setdefault(ref, BookedVolume(ref))

    def setting(self, host: str, what: str, usual: bool = False) -> HostSetting:
        return self.words.setdefault((host, what), HostSetting(usual))
