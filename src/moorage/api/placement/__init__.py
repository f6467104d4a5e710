"""The Placement API, 1.0 to 1.39, over the engine that the scheduler uses: both read one picture and the same tables.

app         authenticate, negotiate the version, find the route, word the errors
web         what a handler is given and gives
schemas     what bodies and queries may say, by version
policy      Placement's rule names
providers inventories vocabulary allocations candidates     handlers, by resource
"""
