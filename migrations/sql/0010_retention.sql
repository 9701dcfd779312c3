-- In the order of a claim, which runs all the time.
LOCK TABLE webhooks.tenants, webhooks.events IN ACCESS EXCLUSIVE MODE;

-- Days whose events are dropped soon: no replay brings anything of them back into the queue
-- meanwhile, so that what the janitor saw stays true.
CREATE TABLE webhooks.retired_days (
    day date CONSTRAINT pk_retired_days PRIMARY KEY,
    retired_at timestamptz NOT NULL DEFAULT now()
);

ALTER TABLE webhooks.tenants
    -- How long its payloads are kept; NULL: as long as their events.
    ADD payload_days integer
        CONSTRAINT ck_tenants_payload_days CHECK (payload_days BETWEEN 1 AND 3650),
    -- Payloads of events before this are gone.
    ADD payloads_gone_until timestamptz NOT NULL DEFAULT '-infinity';

-- NULL: the payload is past its retention, or was erased.
ALTER TABLE webhooks.events ALTER payload DROP NOT NULL;

-- Retention alone deletes entries, and an erasure what they say of their objects.
CREATE OR REPLACE FUNCTION webhooks.refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'TRUNCATE' AND current_setting('webhooks.retention', true) = 'on' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only';
END $$;
