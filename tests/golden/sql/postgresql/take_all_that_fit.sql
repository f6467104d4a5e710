WITH want AS (
    SELECT * FROM unnest(:provider, :class, :change, :least, :most, :unit)
        AS w(provider, class, change, least, most, unit)
), seen AS (
    SELECT p.uuid FROM unnest(:s_uuid, :s_version) AS s(uuid, version)
    JOIN providers AS p ON p.uuid = s.uuid AND p.version = s.version
    ORDER BY p.uuid FOR NO KEY UPDATE OF p
), locked AS (
    SELECT i.provider, i.class FROM inventories AS i JOIN want AS w ON i.provider = w.provider AND i.class = w.class
    WHERE (SELECT count(*) FROM seen) = :seen
    ORDER BY i.provider, i.class FOR UPDATE OF i
)
UPDATE inventories AS i
SET used = i.used + w.change, changed = pg_current_xact_id()::text::bigint, version = nextval('placement_versions')
FROM want AS w JOIN locked AS l ON l.provider = w.provider AND l.class = w.class
WHERE i.provider = w.provider AND i.class = w.class
    AND (w.change <= 0 OR (i.used + w.change <= i.cap
        AND w.least >= i.min_unit AND w.most <= i.max_unit AND w.unit % i.step = 0))
RETURNING i.provider, i.class, i.used, i.cap, i.version
