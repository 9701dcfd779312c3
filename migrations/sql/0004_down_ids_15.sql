-- Time-ordered ids (RFC 9562 version 7) for servers older than 18: a random
-- version 4 id, its first 48 bits replaced by the milliseconds since 1970, and
-- the version raised from 4 (0100) to 7 (0111).
CREATE OR REPLACE FUNCTION webhooks.uuid7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    SELECT encode(
        set_bit(set_bit(
            overlay(
                uuid_send(gen_random_uuid())
                PLACING substring(int8send(
                    floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                FROM 1 FOR 6),
            52, 1), 53, 1),
        'hex')::uuid
$$;
