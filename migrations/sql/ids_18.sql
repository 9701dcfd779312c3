-- Time-ordered ids (RFC 9562 version 7). The server has its own generator.
CREATE FUNCTION webhooks.uuid7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN uuidv7();
