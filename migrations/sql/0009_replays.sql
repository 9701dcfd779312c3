-- Bulk replays: what is to be replayed, how far it is, and how it goes. Workers advance them.
CREATE TABLE webhooks.replays (
    id uuid CONSTRAINT pk_replays PRIMARY KEY DEFAULT webhooks.uuid7(),
    -- NULL: of all tenants.
    tenant_id uuid
        CONSTRAINT fk_replays_tenant_id_tenants REFERENCES webhooks.tenants,
    state text NOT NULL
        CONSTRAINT ck_replays_state CHECK (state IN
            ('planned', 'running', 'paused', 'finished', 'cancelled', 'stopped')),
    -- Why it was stopped.
    reason text,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    ended_at timestamptz,
    -- Which deliveries: NULL is any.
    status text NOT NULL
        CONSTRAINT ck_replays_status CHECK (status IN ('delivered', 'dead_lettered', 'cancelled')),
    endpoint_id uuid,
    event_type text,
    error_class text,
    lowest_code smallint,
    highest_code smallint,
    finished_from timestamptz NOT NULL,
    -- At the latest the replay's own making: what it replays and dies again is not taken twice.
    finished_to timestamptz NOT NULL,
    per_second double precision
        CONSTRAINT ck_replays_per_second CHECK (per_second BETWEEN 0.01 AND 100000),
    -- Of the canary's deliveries; NULL: there is no canary.
    stop_share double precision
        CONSTRAINT ck_replays_stop_share CHECK (stop_share BETWEEN 0 AND 1),
    -- The canary's first delivery, its next ten, the rest.
    stage smallint NOT NULL DEFAULT 0,
    stage_ids uuid[] NOT NULL DEFAULT '{}',
    stage_at timestamptz,
    -- The last delivery that was looked at.
    place_at timestamptz NOT NULL,
    place_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    next_at timestamptz NOT NULL DEFAULT '-infinity',
    replayed bigint NOT NULL DEFAULT 0,
    skipped jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);
CREATE INDEX ix_replays_next_at ON webhooks.replays (next_at) WHERE state = 'running';
CREATE INDEX ix_replays_tenant_id ON webhooks.replays (tenant_id, id);
