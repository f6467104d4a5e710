INSERT INTO consumers (uuid, generation, project, user_id, type, attempt, updated_at) VALUES (?, 1, ?, ?, ?, 0, ?)
ON CONFLICT (uuid) DO UPDATE SET generation = consumers.generation + 1, project = excluded.project, user_id = excluded.user_id,
    type = excluded.type, updated_at = excluded.updated_at
