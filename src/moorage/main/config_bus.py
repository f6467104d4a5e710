"""Settings of who this process is on the bus, and of whom a host is at the image service."""

import msgspec


class Bus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str = "memory:"
    """`memory:` in one process, `nats://host:port` beyond; `tls://host:port` is the same with `tls`."""
    nkey: str = ""
    """The file with the seed of this process's key (`moorage bus key`)."""
    credentials: str = ""
    """Instead: a NATS credentials file, with a JWT."""
    tls: bool = False
    """Nothing is said to a broker that has not shown a certificate which is trusted."""
    ca: str = ""
    """Who signs the broker's certificate; empty: whom the machine trusts."""
    cert: str = ""
    """Our own, where the broker asks for one."""
    key: str = ""
    release_0_1: bool | None = None
    """Whether processes of release 0.1.0 may be on the bus, who name themselves in their messages only; unset: where there are no credentials."""

    @property
    def has_credentials(self) -> bool:
        """Of the kind that is bound to a role, so that the broker may let no more through than that needs."""
        return bool(self.nkey or self.credentials)

    @property
    def earlier(self) -> bool:
        return not self.has_credentials if self.release_0_1 is None else self.release_0_1


class ImageUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom a host reads and fills images as; nobody else's calls are made so."""

    user: str = "moorage-images"
    password: str = ""
    """Empty: a host that needs none has no way to the image service."""
    project: str = "service"
    domain: str = "Default"
