WITH owned AS (
    INSERT INTO consumers (uuid, generation, project, user_id, type, host, operation, attempt, updated_at)
    SELECT o.uuid, 1, q.project, q.user_id, q.type, o.host, o.operation, q.attempt, :now
    FROM unnest((SELECT string_to_array(:o_uuid, E'\n', '\N')), (SELECT string_to_array(:o_host, E'\n', '\N')), (SELECT string_to_array(:o_operation, E'\n', '\N')), (SELECT string_to_array(:o_people, E'\n', '\N'))) AS o(uuid, host, operation, people)
    JOIN unnest((SELECT string_to_array(:q_people, E'\n', '\N')), (SELECT string_to_array(:q_project, E'\n', '\N')), (SELECT string_to_array(:q_user_id, E'\n', '\N')), (SELECT string_to_array(:q_type, E'\n', '\N')), (SELECT string_to_array(:q_attempt, E'\n', '\N')::int[])) AS q(people, project, user_id, type, attempt) ON q.people = o.people
    RETURNING 1
), allocated AS (
    INSERT INTO allocations (consumer, provider, class, used)
    SELECT a.consumer, a.provider, k.class, k.used
    FROM unnest((SELECT string_to_array(:a_consumer, E'\n', '\N')), (SELECT string_to_array(:a_provider, E'\n', '\N')), (SELECT string_to_array(:a_kind, E'\n', '\N'))) AS a(consumer, provider, kind)
    JOIN unnest((SELECT string_to_array(:k_kind, E'\n', '\N')), (SELECT string_to_array(:k_class, E'\n', '\N')), (SELECT string_to_array(:k_used, E'\n', '\N')::bigint[])) AS k(kind, class, used) ON k.kind = a.kind
    RETURNING 1
), seen AS (
    SELECT p.uuid FROM unnest((SELECT string_to_array(:s_uuid, E'\n', '\N')), (SELECT string_to_array(:s_version, E'\n', '\N')::bigint[])) AS s(uuid, version)
    JOIN providers AS p ON p.uuid = s.uuid AND p.version = s.version
    ORDER BY p.uuid FOR NO KEY UPDATE OF p
)
UPDATE inventories AS i
SET used = i.used + s.change, changed = pg_current_xact_id()::text::bigint, version = nextval('placement_versions')
FROM (
    SELECT w.provider, c.class, c.change, c.least, c.most, c.unit
    FROM unnest((SELECT string_to_array(:w_provider, E'\n', '\N')), (SELECT string_to_array(:w_kind, E'\n', '\N'))) AS w(provider, kind)
    JOIN unnest((SELECT string_to_array(:c_kind, E'\n', '\N')), (SELECT string_to_array(:c_class, E'\n', '\N')), (SELECT string_to_array(:c_change, E'\n', '\N')::bigint[]), (SELECT string_to_array(:c_least, E'\n', '\N')::bigint[]), (SELECT string_to_array(:c_most, E'\n', '\N')::bigint[]), (SELECT string_to_array(:c_unit, E'\n', '\N')::bigint[])) AS c(kind, class, change, least, most, unit) ON c.kind = w.kind
    ORDER BY w.provider, c.class
) AS s
WHERE (SELECT count(*) FROM owned) + (SELECT count(*) FROM allocated) > 0
    AND (SELECT count(*) FROM seen) = :seen
    AND i.provider = s.provider AND i.class = s.class AND i.used + s.change <= i.cap
    AND s.least >= i.min_unit AND s.most <= i.max_unit AND s.unit % i.step = 0
RETURNING i.provider, i.class, i.used, i.cap, i.version
