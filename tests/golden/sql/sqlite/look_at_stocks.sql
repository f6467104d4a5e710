SELECT p.uuid, p.generation, p.version, i.class, i.used, i.cap, i.min_unit, i.max_unit, i.step, i.version
FROM json_each(:providers) AS w CROSS JOIN providers AS p ON p.uuid = w.value
LEFT JOIN inventories AS i ON i.provider = p.uuid
