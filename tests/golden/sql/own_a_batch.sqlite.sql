INSERT INTO consumers (uuid, generation, project, user_id, type, host, operation, attempt, server_group, group_policy, updated_at)
SELECT value ->> 0, 1, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, :now FROM json_each(:owners) WHERE true
ON CONFLICT (uuid) DO UPDATE SET generation = consumers.generation + 1, project = excluded.project,
    user_id = excluded.user_id, type = excluded.type, host = excluded.host, operation = excluded.operation,
    attempt = excluded.attempt, server_group = excluded.server_group, group_policy = excluded.group_policy,
    updated_at = excluded.updated_at
