"""How a transaction is run: one plain synchronous function, on SQLite or on PostgreSQL, counted."""

from moorage.sql.dialect import alone, upsert
from moorage.sql.engine import Database, Refused, Tx, open_database
from moorage.sql.meter import Meter, label

__all__ = ["Database", "Meter", "Refused", "Tx", "alone", "label", "open_database", "upsert"]
