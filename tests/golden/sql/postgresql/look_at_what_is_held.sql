SELECT a.consumer, a.provider, a.class, a.used
FROM unnest((SELECT :consumers::text[])) AS w(uuid) JOIN allocations AS a ON a.consumer = w.uuid
