"""Writes the configuration of a NATS server that accepts only listed keys, each with the permissions of its role.

It is always made completely from a list of keys: the processes that an operator lists, and the approved hosts.  The server
reads it again on `nats-server --signal reload`, and closes the connections of keys that it no longer contains.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from moorage.bus.permissions import Permissions, of_agent, of_process
from moorage.bus.security import is_public_key
from moorage.bus.transport import MAX_MESSAGE_BYTES
from moorage.model.errors import Invalid

SUBSCRIPTIONS_MAX = 4_096
"""Limit of subscriptions of one connection; a conductor of a hundred cells needs a thousand."""
ACCOUNT = "MOORAGE"
OVERHEAD_BYTES = 48_576
"""Margin above our own limit of a message, so that the server never refuses a message: it would close the connection."""


class KeyOfProcess(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key that all processes of a role share."""

    role: str
    key: str
    cells: tuple[str, ...] = ()
    """The cells of these processes; empty: all."""


class KeyOfHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The key of one host in one cell."""

    host: str
    cell: str
    key: str


class Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The accepted keys and the server's certificate: the file that `moorage bus config` reads."""

    listen: str = "127.0.0.1:4222"
    """Address of the server; empty: it is configured elsewhere."""
    cert: str = ""
    key: str = ""
    client_ca: str = ""
    """PEM file of CAs: clients must also show a certificate that one of these signed; empty: they need none."""
    earlier_agents: bool = False
    """While agents are upgraded that do not know questions yet (`permissions.of_process`)."""
    processes: tuple[KeyOfProcess, ...] = ()
    hosts: tuple[KeyOfHost, ...] = ()


def read_keys(path: Path) -> Keys:
    """Read the file of keys. Raises Invalid, and names the file and the error."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Keys)
    except OSError as unreadable:
        raise Invalid(f"the file of keys {path} cannot be read: {unreadable.strerror}") from unreadable
    except (msgspec.DecodeError, msgspec.ValidationError) as wrong:
        raise Invalid(f"{path}: {wrong}") from wrong


def configuration(keys: Keys) -> str:
    """Build the server's configuration file. Raises Invalid when a key is not valid, or is listed for two."""
    if bool(keys.cert) != bool(keys.key) or (keys.client_ca and not keys.cert):
        raise Invalid("cert and key of the server belong together, and client_ca needs both")
    _check(keys)
    lines = ["# Written by `moorage bus config`: make it anew rather than change it."]
    lines += [f"listen: {_text(keys.listen)}"] if keys.listen else []
    lines += [
        f"max_payload: {MAX_MESSAGE_BYTES + OVERHEAD_BYTES}",
        f"max_subscriptions: {SUBSCRIPTIONS_MAX}",
    ]
    if keys.cert:
        lines += ["tls {", f"  cert_file: {_text(keys.cert)}", f"  key_file: {_text(keys.key)}"]
        lines += [f"  ca_file: {_text(keys.client_ca)}", "  verify: true"] if keys.client_ca else []
        lines += ["}"]
    lines += [f"accounts {{ {ACCOUNT} {{ users: ["]
    for each in keys.processes:
        allowed = of_process(each.role, each.cells, earlier_agents=keys.earlier_agents)
        lines += _user(each.key, allowed, f"{each.role} {' '.join(each.cells)}".rstrip())
    for host in sorted(keys.hosts, key=lambda each: (each.cell, each.host)):
        lines += _user(host.key, of_agent(host.cell, host.host), f"agent of {host.host} in {host.cell}")
    return "\n".join([*lines, "] } }", ""])


def _check(keys: Keys) -> None:
    given: dict[str, str] = {}
    names: dict[str, str] = {}
    for key, whose in [
        *((each.key, f"the {each.role}") for each in keys.processes),
        *((each.key, f"host {each.host}") for each in keys.hosts),
    ]:
        if not is_public_key(key):
            raise Invalid(
                f"the key of {whose} is not the public half of a user's nkey (56 letters that begin with U): {key[:60]!r}"
            )
        if key in given:
            raise Invalid(f"one key is that of {given[key]} and of {whose}: each has its own")
        given[key] = whose
    for host in keys.hosts:
        if host.host in names:
            raise Invalid(f"host {host.host} stands in the list twice")
        names[host.host] = host.cell


def _user(key: str, allowed: Permissions, whose: str) -> Iterable[str]:
    comment = "".join(letter if letter.isprintable() else "?" for letter in whose)
    return (
        f"  # {comment}",
        f"  {{ nkey: {key}, permissions: {{ publish: {_allow(allowed.publish)}, subscribe: {_allow(allowed.subscribe)} }} }}",
    )


def _allow(patterns: Sequence[str]) -> str:
    """An allow list; if it is empty, a deny of everything, because the server ignores an empty list."""
    if not patterns:
        return '{ deny: [">"] }'
    return f"{{ allow: [{', '.join(map(_text, patterns))}] }}"


def _text(text: str) -> str:
    """Quote a text for the server. Raises Invalid when it contains a quote."""
    if any(letter in '"\\' or not letter.isprintable() for letter in text):
        raise Invalid(f"{text!r} cannot stand in a configuration of the server")
    return f'"{text}"'
