"""The embedded network service's way to the claims of servers: what it changes of a bound port's guarantee is claimed at once."""

from collections.abc import Sequence

from moorage.embedded.network.guarantees import GuaranteeChange
from moorage.main.region import Region
from moorage.model.ids import ProviderId
from moorage.model.verdict import Row
from moorage.sql import Tx, label


class GuaranteeDoor:
    """Given to the service when it is opened; the region is known later."""

    def __init__(self) -> None:
        self.region: Region | None = None

    async def __call__(self, changes: Sequence[GuaranteeChange], must_be: bool) -> bool:
        """Change what the servers hold, all of it or nothing; `must_be`: though there is not so much. False: it does not fit."""
        region = self.region
        if region is None:
            return False
        engine = region.engine

        def work(tx: Tx) -> tuple[Row, ...] | None:
            rows: list[Row] = []
            for change in changes:
                amounts = {(ProviderId(each.provider), each.resource): (each.was, each.now) for each in change.amounts}
                done = engine.adjust(tx, change.server, amounts, force=must_be)
                if done is None:
                    return tx.refuse(None)
                rows += done
            return tuple(rows)

        with label("change_guarantees"):
            rows = await region.databases.region.write(work)
        if rows is None:
            return False
        engine.settle(rows)
        return True
