"""Limits of a database: how long a process waits for it, and how many connections it opens."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Durability: TypeAlias = Literal["power", "process"]


@dataclass(frozen=True)
class DatabaseLoad:
    """How busy this process's connections to a database are now."""

    size: int
    """Connections that the process may have."""
    in_use: int
    waiting: int
    """Transactions that wait for a connection."""


@dataclass(frozen=True)
class DatabaseLimits:
    """The limits of one process and one database; operators set them in `[database]` (`main/config.py`)."""

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
