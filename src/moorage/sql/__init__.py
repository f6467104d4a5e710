"""Runs transactions: each is one plain synchronous function, on SQLite or PostgreSQL; statements and commits are counted."""

from moorage.sql.dialect import alone, insert, upsert
from moorage.sql.engine import Database, open_database
from moorage.sql.limits import Durability, Limits, Load
from moorage.sql.meter import Meter, current_label, label
from moorage.sql.raw_statement import RawStatement
from moorage.sql.tx import Refused, Tx, Work

__all__ = [
    "Database",
    "Durability",
    "Limits",
    "Load",
    "Meter",
    "RawStatement",
    "Refused",
    "Tx",
    "Work",
    "alone",
    "current_label",
    "insert",
    "label",
    "open_database",
    "upsert",
]
