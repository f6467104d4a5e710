"""One door to the tables, bound to one open transaction."""

from typing import Any

from moorage.sql import Tx
from moorage_embedded.network.store.addresses import Addresses
from moorage_embedded.network.store.counts import Counts
from moorage_embedded.network.store.records import Doc, DocumentRecords, Surroundings

__all__ = ["Doc", "NetworkStore", "Surroundings"]


class NetworkStore(DocumentRecords, Addresses, Counts):
    """Documents, addresses, and what is counted or held."""

    def __init__(self, tx: Tx) -> None:
        super().__init__(tx)

    def refuse(self, value: Any) -> None:
        """Take back everything, and let the transaction answer `value`."""
        self.tx.refuse(value)
