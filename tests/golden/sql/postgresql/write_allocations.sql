WITH owner AS (INSERT INTO consumers
    (uuid, generation, project, user_id, type, host, operation, attempt, server_group, group_policy, updated_at)
VALUES (:uuid, 1, :project, :user_id, :type, :host, :operation, :attempt, :server_group, :group_policy, :now)
ON CONFLICT (uuid) DO UPDATE SET generation = consumers.generation + 1, project = excluded.project,
    user_id = excluded.user_id, type = excluded.type, host = excluded.host, operation = excluded.operation,
    attempt = excluded.attempt, server_group = excluded.server_group, group_policy = excluded.group_policy,
    updated_at = excluded.updated_at RETURNING uuid)
INSERT INTO allocations (consumer, provider, class, used)
SELECT owner.uuid, a.provider, a.class, a.used
FROM owner, unnest(:provider, :class, :used) AS a(provider, class, used)
ON CONFLICT (consumer, provider, class) DO UPDATE SET used = allocations.used + excluded.used
