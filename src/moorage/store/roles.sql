-- The roles of Moorage's processes in PostgreSQL, each with what it needs.  `moorage db roles` prints this.
--
-- Run it as the owner of the databases, who is whom `moorage db upgrade` and `moorage embedded` run as: in the region's database and in
-- each cell's, when their tables are made, and again after every upgrade.  It may be run as often as you like.  The first time it
-- makes the roles, for which the owner needs CREATEROLE; give each a password then: ALTER ROLE moorage_api PASSWORD '…'.
--
--     owner               makes and alters tables; no process but those two runs as it
--     moorage_api         reads and writes what requests read and write; neither tables nor leases
--     moorage_conductor   executes operations; neither tables nor what administrators and users alone say
--     moorage_console     reads where servers are, and takes tokens
--     moorage_metadata    reads servers, and addresses of flat networks
--     agents              none: an agent uses no database

DO $$
DECLARE
    here text := current_database();
    everybody text := 'moorage_api, moorage_conductor, moorage_console, moorage_metadata';
    who text;
    what text;
BEGIN
    FOREACH who IN ARRAY string_to_array(everybody, ', ') LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = who) THEN
            EXECUTE format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION', who);
        END IF;
    END LOOP;
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', here);
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO %s', here, everybody);
    REVOKE ALL ON SCHEMA public FROM PUBLIC;
    EXECUTE 'GRANT USAGE ON SCHEMA public TO ' || everybody;
    EXECUTE 'REVOKE ALL ON ALL TABLES IN SCHEMA public FROM ' || everybody;
    GRANT SELECT ON ALL TABLES IN SCHEMA public TO moorage_api, moorage_conductor;
    GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO moorage_api, moorage_conductor;
    GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO moorage_api, moorage_conductor;

    -- Which revision the tables are at is the owner's to say.
    FOR what IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE '%\_version' LOOP
        EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %I FROM moorage_api, moorage_conductor', what);
        EXECUTE format('GRANT SELECT ON %I TO moorage_console, moorage_metadata', what);
    END LOOP;
    -- Console and metadata processes, to which browsers and guests come, read servers and which databases belong together.
    FOREACH what IN ARRAY ARRAY['servers', 'store_identity', 'known_cells', 'processes'] LOOP
        IF to_regclass('public.' || what) IS NOT NULL THEN
            EXECUTE format('GRANT SELECT ON %I TO moorage_console, moorage_metadata', what);
        END IF;
    END LOOP;
    -- Each process looks whether stamps are of another cluster (`placement/restamp.py`), and sees no more of these rows.
    FOREACH what IN ARRAY ARRAY['providers', 'inventories', 'gone', 'group_hosts', 'group_homes'] LOOP
        IF to_regclass('public.' || what) IS NOT NULL THEN
            EXECUTE format('GRANT SELECT (changed) ON %I TO moorage_console, moorage_metadata', what);
        END IF;
    END LOOP;
    IF to_regclass('public.flat_addresses') IS NOT NULL THEN
        GRANT SELECT ON flat_addresses TO moorage_metadata;
    END IF;
    -- A lease is a conductor's; an API only reads who lives.
    FOREACH what IN ARRAY ARRAY['conductors', 'conductor_network'] LOOP
        IF to_regclass('public.' || what) IS NOT NULL THEN
            EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %I FROM moorage_api', what);
        END IF;
    END LOOP;
    -- What administrators and users say, and no operation changes.
    FOREACH what IN ARRAY ARRAY['flavors', 'key_pairs', 'quota_classes', 'quota_limits', 'quota_user_limits',
                                'turn_resets'] LOOP
        IF to_regclass('public.' || what) IS NOT NULL THEN
            EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %I FROM moorage_conductor', what);
        END IF;
    END LOOP;
    -- Every process says that it is there.
    IF to_regclass('public.processes') IS NOT NULL THEN
        GRANT INSERT, UPDATE, DELETE ON processes TO moorage_console, moorage_metadata;
    END IF;
    -- Whoever encrypts says under which key.
    IF to_regclass('public.region_keys') IS NOT NULL THEN
        GRANT SELECT, INSERT ON region_keys TO moorage_metadata;
    END IF;
    -- A token is taken by whoever carries the console.
    IF to_regclass('public.console_tokens') IS NOT NULL THEN
        GRANT SELECT, UPDATE, DELETE ON console_tokens TO moorage_console;
    END IF;
END $$;
