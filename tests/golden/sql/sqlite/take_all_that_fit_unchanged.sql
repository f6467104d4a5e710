WITH want(provider, class, change, least, most, unit) AS (VALUES (:p0, :c0, :d0, :l0, :m0, :u0), (:p1, :c1, :d1, :l1, :m1, :u1))
UPDATE inventories AS i
SET used = i.used + w.change, changed = :stamp, version = :stamp
FROM want AS w
WHERE i.provider = w.provider AND i.class = w.class
    AND (w.change <= 0 OR (i.used + w.change <= i.cap
        AND w.least >= i.min_unit AND w.most <= i.max_unit AND w.unit % i.step = 0))
    AND (SELECT count(*) FROM (VALUES (:sp0, :sv0), (:sp1, :sv1)) AS s JOIN providers AS p ON p.uuid = s.column1 AND p.version = s.column2) = 2
RETURNING provider, class, used, cap, version
