-- What an operator sets for a tenant and an endpoint beyond its URL, and what the engine
-- remembers of a lane to act on it: rate limit, breaker, evidence for disabling.
ALTER TABLE webhooks.tenants
    ADD retry_policy jsonb
        CONSTRAINT ck_tenants_retry_policy CHECK (jsonb_typeof(retry_policy) = 'object');

ALTER TABLE webhooks.endpoints
    -- Attempts per second, and how many may be made at once after a pause.
    ADD rate_limit double precision
        CONSTRAINT ck_endpoints_rate_limit CHECK (rate_limit > 0 AND rate_limit <= 100000),
    ADD rate_burst integer
        CONSTRAINT ck_endpoints_rate_burst CHECK (rate_burst BETWEEN 1 AND 100000),
    -- Why the engine closed it: failures, since when, the last one's class, code and delivery.
    ADD status_evidence jsonb,
    ADD CONSTRAINT ck_endpoints_rate CHECK ((rate_limit IS NULL) = (rate_burst IS NULL));

ALTER TABLE webhooks.lanes
    ADD rate_limit double precision,
    ADD rate_burst integer,
    -- GCRA: when one more attempt conforms (the theoretical arrival time less the tolerance).
    ADD rate_open_at timestamptz NOT NULL DEFAULT '-infinity',
    -- Failures in a row that say that nobody is there: what opens the breaker.
    ADD strikes integer NOT NULL DEFAULT 0,
    -- For how long the breaker has closed the lane; 0: it has not. Once open_at has passed,
    -- a single probe goes out, and its outcome decides.
    ADD broken_s double precision NOT NULL DEFAULT 0,
    ADD failed_at timestamptz,
    ADD last_error text,
    ADD last_status_code smallint,
    ADD last_delivery_id uuid,
    -- The owner has been told that it will be disabled.
    ADD warned_at timestamptz,
    -- A throttle by the receiver was last written to the audit log.
    ADD throttled_at timestamptz;
