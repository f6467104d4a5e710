"""Runs transactions: each is one plain synchronous function, on SQLite or PostgreSQL; statements and commits are counted."""

from moorage.sql.dialect import alone, insert, upsert
from moorage.sql.engine import Database, open_database
from moorage.sql.limits import DatabaseLimits, DatabaseLoad, Durability
from moorage.sql.meter import Meter, current_label, label
from moorage.sql.raw_statement import RawStatement
from moorage.sql.tx import TransactionRefused, Tx, Work

__all__ = [
    "Database",
    "DatabaseLimits",
    "DatabaseLoad",
    "Durability",
    "Meter",
    "RawStatement",
    "TransactionRefused",
    "Tx",
    "Work",
    "alone",
    "current_label",
    "insert",
    "label",
    "open_database",
    "upsert",
]
