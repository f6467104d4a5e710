WITH counted AS (
    UPDATE inventories AS i
    SET used = i.used + w.change, changed = pg_current_xact_id()::text::bigint, version = nextval('placement_versions')
    FROM unnest((SELECT :i_provider::text[]), (SELECT :i_class::text[]), (SELECT :i_change::bigint[])) AS w(provider, class, change)
    WHERE i.provider = w.provider AND i.class = w.class AND (w.change < 0 OR i.used + w.change <= i.cap)
    RETURNING i.provider, i.class, i.used, i.cap, i.version
), moved AS (
    UPDATE providers AS p
    SET generation = p.generation + w.steps, changed = pg_current_xact_id()::text::bigint,
        version = nextval('placement_versions'), updated_at = :now
    FROM unnest((SELECT :p_uuid::text[]), (SELECT :p_steps::bigint[])) AS w(uuid, steps)
    WHERE p.uuid = w.uuid
    RETURNING p.uuid, p.generation, p.version
), owned AS (
    INSERT INTO consumers (uuid, generation, project, user_id, type, attempt, updated_at)
    SELECT c.uuid, c.generation, c.project, c.user_id, c.type, 0, :now
    FROM unnest((SELECT :c_uuid::text[]), (SELECT :c_generation::bigint[]), (SELECT :c_project::text[]), (SELECT :c_user::text[]),
        (SELECT :c_type::text[])) AS c(uuid, generation, project, user_id, type)
    ON CONFLICT (uuid) DO UPDATE SET generation = excluded.generation, project = excluded.project,
        user_id = excluded.user_id, type = excluded.type, updated_at = excluded.updated_at
        WHERE consumers.generation = excluded.generation - 1
    RETURNING uuid
), dropped AS (
    DELETE FROM allocations AS a
    USING unnest((SELECT :d_consumer::text[]), (SELECT :d_provider::text[]), (SELECT :d_class::text[])) AS w(consumer, provider, class)
    WHERE a.consumer = w.consumer AND a.provider = w.provider AND a.class = w.class
), held AS (
    INSERT INTO allocations (consumer, provider, class, used)
    SELECT * FROM unnest((SELECT :a_consumer::text[]), (SELECT :a_provider::text[]), (SELECT :a_class::text[]), (SELECT :a_used::bigint[]))
    ON CONFLICT (consumer, provider, class) DO UPDATE SET used = excluded.used
)
SELECT provider, class, used, cap, version FROM counted
UNION ALL SELECT uuid, NULL, generation, NULL, version FROM moved
UNION ALL SELECT NULL, NULL, count(*), NULL, NULL FROM owned
