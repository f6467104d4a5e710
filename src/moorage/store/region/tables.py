"""The one MetaData of the region's tables; each noun declares its own tables on it, in its own file."""

from sqlalchemy import MetaData

region_metadata = MetaData()
