"""What is counted (quota), held (unique words) and shared (with other projects)."""

from collections.abc import Mapping
from typing import cast

import sqlalchemy as sa

from moorage.sql import Tx
from moorage_embedded.network.store.tables import holds, shares, usage

_COUNT = sa.text(
    "INSERT INTO network_usage (project, noun, used, cap) VALUES (:project, :noun, :n, NULL)"
    " ON CONFLICT (project, noun) DO UPDATE SET used = network_usage.used + :n RETURNING used, cap"
)
_CAP = sa.text(
    "INSERT INTO network_usage (project, noun, used, cap) VALUES (:project, :noun, 0, :cap)"
    " ON CONFLICT (project, noun) DO UPDATE SET cap = :cap"
)
_HOLD = sa.text(
    "INSERT INTO network_holds (scope, value, owner) VALUES (:scope, :value, :owner)"
    " ON CONFLICT DO NOTHING RETURNING value"
)
_SHARE = sa.text(
    "INSERT INTO network_shares (object, action, target, noun) VALUES (:object, :action, :target, :noun)"
    " ON CONFLICT DO NOTHING RETURNING target"
)


class Counts:
    """Counters and unique words."""

    tx: Tx

    def count(self, project: str, noun: str, n: int) -> tuple[int, int | None]:
        """Add to a project's usage; returns (used, its own limit). The row stays locked until the commit, so the limit
        is never exceeded.
        """
        found = self.tx.row(_COUNT, {"project": project, "noun": noun, "n": n})
        assert found is not None  # RETURNING of an upsert
        return found[0], found[1]

    def caps(self, project: str) -> dict[str, tuple[int, int | None]]:
        query = sa.select(usage.c.noun, usage.c.used, usage.c.cap).where(usage.c.project == project)
        return {noun: (used, cap) for noun, used, cap in self.tx.rows(query)}

    def all_caps(self) -> dict[str, dict[str, int]]:
        """Projects that have limits of their own."""
        found: dict[str, dict[str, int]] = {}
        query = sa.select(usage.c.project, usage.c.noun, usage.c.cap).where(usage.c.cap.is_not(None))
        for project, noun, cap in self.tx.rows(query):
            found.setdefault(project, {})[noun] = cap
        return found

    def set_caps(self, project: str, caps: Mapping[str, int]) -> None:
        for noun, cap in caps.items():
            self.tx.run(_CAP, {"project": project, "noun": noun, "cap": cap})

    def drop_caps(self, project: str) -> None:
        self.tx.run(sa.update(usage).where(usage.c.project == project).values(cap=None))

    def hold(self, scope: str, value: str, owner: str) -> bool:
        """False when the word is held already."""
        return bool(self.tx.rows(_HOLD, {"scope": scope, "value": value, "owner": owner}))

    def holder(self, scope: str, value: str) -> str | None:
        query = sa.select(holds.c.owner).where(holds.c.scope == scope, holds.c.value == value)
        return cast("str | None", self.tx.scalar(query))

    def held(self, scope: str) -> dict[str, str]:
        query = sa.select(holds.c.value, holds.c.owner).where(holds.c.scope == scope)
        return {row[0]: row[1] for row in self.tx.rows(query)}

    def drop_holds(self, owner: str) -> None:
        self.tx.run(sa.delete(holds).where(holds.c.owner == owner))

    def share(self, noun: str, object: str, action: str, target: str) -> bool:
        """False when it is shared so already."""
        return bool(self.tx.rows(_SHARE, {"object": object, "action": action, "target": target, "noun": noun}))

    def unshare(self, object: str, action: str | None = None, target: str | None = None) -> None:
        query = sa.delete(shares).where(shares.c.object == object)
        if action is not None:
            query = query.where(shares.c.action == action)
        if target is not None:
            query = query.where(shares.c.target == target)
        self.tx.run(query)
