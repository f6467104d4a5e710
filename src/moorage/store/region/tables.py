"""The MetaData of the region's tables; each module declares its own tables on it."""

from sqlalchemy import MetaData

region_metadata = MetaData()
