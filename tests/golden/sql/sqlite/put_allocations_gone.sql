DELETE FROM allocations WHERE consumer = ? AND provider = ? AND class = ?
