"""Live migration, within a cell and between linked cells."""
