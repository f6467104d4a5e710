"""All the SQL of the embedded network service. `Store(tx)` is what a verb is given; it never sees a statement."""

from moorage.embedded.network.store.store import Doc, Store, Surroundings
from moorage.embedded.network.store.tables import TABLES, metadata

__all__ = ["TABLES", "Doc", "Store", "Surroundings", "metadata"]
