"""The one MetaData of a cell's tables; each noun declares its own tables on it, in its own file."""

from sqlalchemy import MetaData

cell_metadata = MetaData()
