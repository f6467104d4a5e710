"""All SQL of the region and of the cells. `region` and `cell` are different databases, and no query joins them."""
