WITH mine AS (
    SELECT c.uuid, c.generation, c.type FROM unnest((SELECT :consumers::text[])) AS w(uuid) JOIN consumers AS c ON c.uuid = w.uuid
    ORDER BY c.uuid FOR UPDATE OF c
), locked AS (
    SELECT p.uuid, p.generation, p.version FROM unnest((SELECT :providers::text[])) AS w(uuid) JOIN providers AS p ON p.uuid = w.uuid
    ORDER BY p.uuid FOR NO KEY UPDATE OF p
)
SELECT uuid, generation, type, NULL FROM mine UNION ALL SELECT uuid, generation, NULL, version FROM locked
