INSERT INTO allocations (consumer, provider, class, used)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(:rows) WHERE true
ON CONFLICT (consumer, provider, class) DO UPDATE SET used = allocations.used + excluded.used
