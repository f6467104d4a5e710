"""Placement's tables, as their own MetaData, and the SQL over them (RULES §5, §6, §11).

`tables` declares them; `claim_statements` moves `used` together with `allocations`, which no other module does except
`allocation_writes`; `groups` counts server groups; `provider_statements` writes what providers have; `change_feed`
reads the changes for the cache in memory.
"""

from moorage.store.region.placement.tables import placement_metadata

__all__ = ["placement_metadata"]
