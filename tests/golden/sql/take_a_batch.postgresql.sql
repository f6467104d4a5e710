WITH owned AS (
    INSERT INTO consumers (uuid, generation, project, user_id, type, host, operation, attempt, server_group, group_policy, updated_at)
    SELECT o.uuid, 1, o.project, o.user_id, o.type, o.host, o.operation, o.attempt, o.server_group, o.group_policy, :now
    FROM unnest(
        (SELECT string_to_array(:o_uuid, E'\n', '\N')),
        (SELECT string_to_array(:o_project, E'\n', '\N')),
        (SELECT string_to_array(:o_user_id, E'\n', '\N')),
        (SELECT string_to_array(:o_type, E'\n', '\N')),
        (SELECT string_to_array(:o_host, E'\n', '\N')),
        (SELECT string_to_array(:o_operation, E'\n', '\N')),
        (SELECT string_to_array(:o_attempt, E'\n', '\N')::int[]),
        (SELECT string_to_array(:o_server_group, E'\n', '\N')),
        (SELECT string_to_array(:o_group_policy, E'\n', '\N')))
        AS o(uuid, project, user_id, type, host, operation, attempt, server_group, group_policy)
    ON CONFLICT (uuid) DO UPDATE SET generation = consumers.generation + 1, project = excluded.project,
    user_id = excluded.user_id, type = excluded.type, host = excluded.host, operation = excluded.operation,
    attempt = excluded.attempt, server_group = excluded.server_group, group_policy = excluded.group_policy,
    updated_at = excluded.updated_at
), allocated AS (
    INSERT INTO allocations (consumer, provider, class, used)
    SELECT * FROM unnest(
        (SELECT string_to_array(:a_consumer, E'\n', '\N')),
        (SELECT string_to_array(:a_provider, E'\n', '\N')),
        (SELECT string_to_array(:a_class, E'\n', '\N')),
        (SELECT string_to_array(:a_used, E'\n', '\N')::bigint[]))
    ON CONFLICT (consumer, provider, class) DO UPDATE SET used = allocations.used + excluded.used
)
UPDATE inventories AS i
SET used = i.used + w.change, changed = pg_current_xact_id()::text::bigint, version = nextval('placement_versions')
FROM unnest(
        (SELECT string_to_array(:w_provider, E'\n', '\N')),
        (SELECT string_to_array(:w_class, E'\n', '\N')),
        (SELECT string_to_array(:w_change, E'\n', '\N')::bigint[])) AS w(provider, class, change)
WHERE i.provider = w.provider AND i.class = w.class AND i.used + w.change <= i.cap
RETURNING i.provider, i.class, i.used, i.cap, i.version
