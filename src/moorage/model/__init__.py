"""Values that all packages share: ids, problems, servers, networks, resources.  They are immutable and do no I/O."""
