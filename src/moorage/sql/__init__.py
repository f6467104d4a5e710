"""How a transaction is run: one plain synchronous function, on SQLite or on PostgreSQL, counted."""

from moorage.sql.dialect import alone, upsert
from moorage.sql.engine import Database, open_database
from moorage.sql.limits import Durability, Limits, Load
from moorage.sql.meter import Meter, current_label, label
from moorage.sql.prepared import PreparedStatement
from moorage.sql.raw_statement import RawStatement
from moorage.sql.tx import Refused, Tx, Work

__all__ = [
    "Database",
    "Durability",
    "Limits",
    "Load",
    "Meter",
    "PreparedStatement",
    "RawStatement",
    "Refused",
    "Tx",
    "Work",
    "alone",
    "current_label",
    "label",
    "open_database",
    "upsert",
]
