UPDATE inventories SET used = ?, changed = ?, version = ?
WHERE provider = ? AND class = ? AND used = ?
