"""What a guest cannot have on this host, said so that the server's owner may act on it."""

from moorage.model.errors import HostFailed


def cannot(what: str) -> HostFailed:
    """Of what this driver does not make on any host."""
    return HostFailed(f"the libvirt driver cannot make {what} yet", code="not_supported")


def not_here(why: str, private: str = "") -> HostFailed:
    """Of what this host does not have, or of wishes that exclude each other, in Nova's words where it has some."""
    return HostFailed(why, private=private or why, code="not_supported")
