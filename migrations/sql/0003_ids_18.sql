-- The server has it built in; emit asks it each time whether the day's partition is there.
CREATE OR REPLACE FUNCTION webhooks.uuid7_time(id uuid) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT uuid_extract_timestamp(id) $$;
