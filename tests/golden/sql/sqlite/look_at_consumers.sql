SELECT c.uuid, c.generation, c.type, a.provider, a.class, a.used
FROM json_each(:consumers) AS w CROSS JOIN consumers AS c ON c.uuid = w.value
LEFT JOIN allocations AS a ON a.consumer = c.uuid
