SELECT i.provider, i.class, i.used, i.cap, i.min_unit, i.max_unit, i.step, i.version
FROM unnest((SELECT :providers::text[]), (SELECT :classes::text[])) AS w(provider, class)
JOIN inventories AS i ON i.provider = w.provider AND i.class = w.class
ORDER BY i.provider, i.class FOR UPDATE OF i
