"""The language spoken in every room: ids, problems, servers, networks, resources.  Frozen values, no I/O."""
