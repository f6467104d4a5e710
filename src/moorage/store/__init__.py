"""Memory: all SQL of the region and of the cells.  `region` and `cell` are different databases and never meet in a query."""
