"""The MetaData of a cell's tables; each module declares its own tables on it."""

from sqlalchemy import MetaData

cell_metadata = MetaData()
