UPDATE providers SET generation = generation + ?, changed = ?, version = ?, updated_at = ?
WHERE uuid = ?
