"""The conductor: executes operations, takes hosts' reports, adopts operations of dead conductors, runs reconcilers."""
