UPDATE inventories AS i
SET used = i.used + (w.value ->> 2), changed = :stamp, version = :stamp
FROM json_each(:want) AS w
WHERE i.provider = w.value ->> 0 AND i.class = w.value ->> 1 AND i.used + (w.value ->> 2) <= i.cap
    AND w.value ->> 3 >= i.min_unit AND w.value ->> 4 <= i.max_unit AND (w.value ->> 5) % i.step = 0
    AND (SELECT count(*) FROM json_each(:versions) AS s
        JOIN providers AS p ON p.uuid = s.value ->> 0 AND p.version = s.value ->> 1) = :seen
RETURNING provider, class, used, cap, version
