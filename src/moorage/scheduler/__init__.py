"""Pure functions that find the best hosts for a request.  They read the World, change nothing, and do not know the time."""
