"""Shelve, offload and unshelve, in place, on another host and in another cell."""
