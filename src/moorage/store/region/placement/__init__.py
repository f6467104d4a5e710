"""Placement's tables, as their own MetaData, and the SQL over them (RULES §5, §6, §11).

`tables` names them; `claims` moves `used` together with `allocations`, the only place that does; `groups` counts server
groups; `providers` writes what providers have; `changes` reads what is new for the picture in memory.
"""

from moorage.store.region.placement.tables import placement_metadata

__all__ = ["placement_metadata"]
