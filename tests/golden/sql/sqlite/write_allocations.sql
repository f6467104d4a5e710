INSERT INTO allocations (consumer, provider, class, used) VALUES (:uuid, :p0, :c0, :u0), (:uuid, :p1, :c1, :u1)
ON CONFLICT (consumer, provider, class) DO UPDATE SET used = allocations.used + excluded.used
