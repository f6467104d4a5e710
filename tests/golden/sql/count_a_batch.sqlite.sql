UPDATE inventories AS i
SET used = i.used + (w.value ->> 2), changed = :stamp, version = :stamp
FROM json_each(:want) AS w
WHERE i.provider = w.value ->> 0 AND i.class = w.value ->> 1 AND i.used + (w.value ->> 2) <= i.cap
RETURNING provider, class, used, cap, version
