SELECT i.provider, i.class, i.used, i.cap, i.min_unit, i.max_unit, i.step, i.version
FROM json_each(:want) AS w CROSS JOIN inventories AS i ON i.provider = w.value ->> 0 AND i.class = w.value ->> 1
