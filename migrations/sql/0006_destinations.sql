-- A URL's host as a number, so that a lane's row stays small: how much goes to one host at a
-- time is limited over all tenants. URLs are stored in one canonical form.
CREATE FUNCTION webhooks.host_of(url text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
    SELECT hashtextextended(substring(url FROM '^[a-z]+://(\[[^\]]*\]|[^/?#:]*)'), 0)
$$;
REVOKE EXECUTE ON FUNCTION webhooks.host_of FROM PUBLIC;

ALTER TABLE webhooks.lanes ADD host bigint;

UPDATE webhooks.lanes l SET host = webhooks.host_of(e.url)
FROM webhooks.endpoints e WHERE e.id = l.endpoint_id;
