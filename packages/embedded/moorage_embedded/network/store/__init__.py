"""All the SQL of the embedded network service. `Store(tx)` is what a verb is given; it never sees a statement."""

from moorage_embedded.network.store.store import Doc, NetworkStore, Surroundings
from moorage_embedded.network.store.tables import TABLES, metadata

__all__ = ["TABLES", "Doc", "NetworkStore", "Surroundings", "metadata"]
