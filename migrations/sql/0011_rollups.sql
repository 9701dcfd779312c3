-- Attempts counted by the workers, who add to it every few seconds. Each is counted for its
-- endpoint and event type, for its tenant, and for the installation: ids of nothing but zeros,
-- and an empty event type, stand for all; and for its minute, its hour and its day.
CREATE TABLE webhooks.delivery_counts (
    shard smallint NOT NULL,
    tenant_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    -- Minutes: 1, 60 or 1440.
    width smallint NOT NULL
        CONSTRAINT ck_delivery_counts_width CHECK (width IN (1, 60, 1440)),
    at timestamptz NOT NULL,
    event_type text NOT NULL,
    -- Attempts.
    delivered bigint NOT NULL,
    failed bigint NOT NULL,
    -- Deliveries whose last try this was; among the failed.
    dead_lettered bigint NOT NULL,
    -- Attempts that were answered or timed out, by duration: webhooks/latency.py has the bounds.
    durations bigint[] NOT NULL,
    CONSTRAINT pk_delivery_counts
        PRIMARY KEY (shard, tenant_id, endpoint_id, width, at, event_type)
) WITH (fillfactor = 70);
CREATE INDEX ix_delivery_counts_width_at ON webhooks.delivery_counts (width, at);

CREATE FUNCTION webhooks.add_counts(a bigint[], b bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$ SELECT array_agg(coalesce(x, 0) + coalesce(y, 0)) FROM unnest(a, b) AS u (x, y) $$;
REVOKE EXECUTE ON FUNCTION webhooks.add_counts FROM PUBLIC;

CREATE TABLE webhooks.failure_groups (
    shard smallint NOT NULL,
    tenant_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    -- What the failures have in common: class, code and the text without its numbers.
    fingerprint bytea NOT NULL,
    id uuid NOT NULL DEFAULT webhooks.uuid7(),
    error_class text NOT NULL,
    status_code smallint,
    -- The text of the last one.
    detail text NOT NULL,
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    failures bigint NOT NULL,
    dead_lettered bigint NOT NULL,
    last_delivery_id uuid NOT NULL,
    -- Acknowledged: somebody is at it, until it happens again after some quiet. Muted: it is
    -- shown to nobody who does not ask.
    state text NOT NULL DEFAULT 'open'
        CONSTRAINT ck_failure_groups_state CHECK (state IN ('open', 'acknowledged', 'muted')),
    state_by text,
    state_at timestamptz,
    CONSTRAINT pk_failure_groups PRIMARY KEY (shard, endpoint_id, fingerprint)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX uq_failure_groups_id ON webhooks.failure_groups (id);
CREATE INDEX ix_failure_groups_tenant_id_last_at ON webhooks.failure_groups (tenant_id, last_at);
CREATE INDEX ix_failure_groups_last_at ON webhooks.failure_groups (last_at);
