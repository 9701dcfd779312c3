-- Time-ordered ids (RFC 9562 version 7, section 6.2 method 3) for servers older than 18, as
-- PostgreSQL 18 makes them: 48 bits of milliseconds since 1970, the version, 12 bits of the
-- millisecond's fraction, and the rest of a random version 4 id. So two ids that are made one
-- after the other sort in that order, unless within the same microsecond.
CREATE OR REPLACE FUNCTION webhooks.uuid7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    SELECT encode(
        overlay(
            uuid_send(gen_random_uuid())
            PLACING int8send(us / 1000 << 16 | 28672 | us % 1000 * 4096 / 1000)
            FROM 1 FOR 8),
        'hex')::uuid
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS now
$$;
