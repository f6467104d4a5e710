INSERT INTO allocations (consumer, provider, class, used) VALUES (?, ?, ?, ?)
ON CONFLICT (consumer, provider, class) DO UPDATE SET used = excluded.used
