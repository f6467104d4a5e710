"""How long a database is waited for, and how many connections a process has."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Durability: TypeAlias = Literal["power", "process"]


@dataclass(frozen=True)
class Load:
    """How busy a database keeps this process, now."""

    size: int
    """Connections that it may have."""
    in_use: int
    waiting: int
    """Transactions that wait for one."""


@dataclass(frozen=True)
class Limits:
    """Of one process and one database; `main/config.py` ([database]) says the same to operators."""

    pool_size: int = 16
    """PostgreSQL: connections of a process to one database."""
    pool_wait_s: float = 30.0
    """PostgreSQL: how long a transaction waits for a connection that is free."""
    connect_s: float = 10.0
    """PostgreSQL: how long a new connection may take, all of it."""
    statement_s: float = 20.0
    """PostgreSQL: how long one statement may take; the server ends it, and if that is silent, the client does so."""
    file_wait_s: float = 60.0
    """SQLite: how long a transaction waits for its turn and its answer: a disk may hang."""
