"""Commands for people. They call a running cloud over HTTP, like any other client."""
