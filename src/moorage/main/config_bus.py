"""Settings of the bus and of a process's credentials on it, and of a host's account at the image service."""

import msgspec


class BusConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str = "memory:"
    """`memory:` in one process, `nats://host:port` beyond; `tls://host:port` is the same with `tls`."""
    nkey: str = ""
    """The file with the seed of this process's key (`moorage bus key`)."""
    credentials: str = ""
    """Instead: a NATS credentials file, with a JWT."""
    tls: bool = False
    """Send nothing to a broker before it has shown a trusted certificate."""
    ca: str = ""
    """PEM file of the CA of the broker's certificate; empty: the CAs that this machine trusts."""
    cert: str = ""
    """Our own, where the broker asks for one."""
    key: str = ""
    release_0_1: bool | None = None
    """Whether processes of release 0.1.0 may be on the bus, which identify themselves only in their messages; unset: yes if this process has no credentials."""

    @property
    def has_credentials(self) -> bool:
        """Whether this process has credentials that are bound to a role, so that the broker limits it to what the role needs."""
        return bool(self.nkey or self.credentials)

    @property
    def earlier(self) -> bool:
        return not self.has_credentials if self.release_0_1 is None else self.release_0_1


class ImageUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The account with which a host reads and writes images; it is used for nothing else."""

    user: str = "moorage-images"
    password: str = ""
    """Empty: the host does not use the image service."""
    project: str = "service"
    domain: str = "Default"
