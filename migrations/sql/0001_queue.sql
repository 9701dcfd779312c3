-- The hot tables. Row states are changed by webhooks/deliveries.py alone.

CREATE TABLE webhooks.workers (
    id uuid CONSTRAINT pk_workers PRIMARY KEY DEFAULT webhooks.uuid7(),
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease interval NOT NULL,
    in_flight integer NOT NULL DEFAULT 0,
    capacity integer NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE webhooks.lanes (
    shard smallint NOT NULL,
    endpoint_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    -- Nothing is claimed before this instant; 'infinity' is paused or disabled.
    open_at timestamptz NOT NULL DEFAULT '-infinity',
    closed_reason text,
    -- Set with open_at = 'infinity' by the engine: what its endpoint's status is to show.
    closed_status text
        CONSTRAINT ck_lanes_closed_status CHECK (closed_status IN ('paused', 'disabled')),
    max_in_flight integer NOT NULL,
    failures integer NOT NULL DEFAULT 0,
    failing_since timestamptz,
    -- Attempts in a row whose target address was refused.
    blocked integer NOT NULL DEFAULT 0,
    deleted boolean NOT NULL DEFAULT false,
    CONSTRAINT pk_lanes PRIMARY KEY (shard, endpoint_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX ix_lanes_closed_status ON webhooks.lanes (endpoint_id)
    WHERE closed_status IS NOT NULL;

CREATE TABLE webhooks.idempotency_keys (
    shard smallint NOT NULL,
    tenant_id uuid NOT NULL,
    scope text NOT NULL,
    key text NOT NULL,
    body_hash bytea NOT NULL,
    answer text NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT pk_idempotency_keys PRIMARY KEY (shard, tenant_id, scope, key)
);
CREATE INDEX ix_idempotency_keys_expires_at ON webhooks.idempotency_keys (expires_at);

-- For fan-outs too large for one transaction, to be expanded by the workers. Emit expands
-- every fan-out by itself until then, and nothing is written here.
CREATE TABLE webhooks.fanouts (
    shard smallint NOT NULL,
    event_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    event_type text NOT NULL,
    after_endpoint_id uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_fanouts PRIMARY KEY (shard, event_id)
);

CREATE TABLE webhooks.events (
    shard smallint NOT NULL,
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    type text NOT NULL,
    payload bytea NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT pk_events PRIMARY KEY (id, shard)
) PARTITION BY RANGE (id);
-- Compressing a payload costs more time than it saves on this path.
ALTER TABLE webhooks.events ALTER payload SET STORAGE EXTERNAL;

CREATE TABLE webhooks.deliveries (
    shard smallint NOT NULL,
    id uuid NOT NULL DEFAULT webhooks.uuid7(),
    tenant_id uuid NOT NULL,
    event_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    event_type text NOT NULL,
    status text NOT NULL DEFAULT 'pending',
    reason text,
    priority smallint NOT NULL DEFAULT 0,
    trigger text NOT NULL DEFAULT 'schedule',
    attempts integer NOT NULL DEFAULT 0,
    tries integer NOT NULL DEFAULT 0,
    lost integer NOT NULL DEFAULT 0,
    status_code smallint,
    error_class text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at timestamptz,
    worker_id uuid,
    claimed_at timestamptz,
    finished_at timestamptz NOT NULL DEFAULT 'infinity',
    CONSTRAINT pk_deliveries PRIMARY KEY (id, shard, finished_at),
    CONSTRAINT ck_deliveries_status CHECK (status IN
        ('pending', 'in_flight', 'scheduled', 'delivered', 'dead_lettered', 'cancelled')),
    CONSTRAINT ck_deliveries_trigger CHECK (trigger IN ('schedule', 'manual', 'bulk')),
    -- The partition a row lies in and the state it shows can never disagree.
    CONSTRAINT ck_deliveries_finished_at CHECK (
        (finished_at = 'infinity') = (status IN ('pending', 'in_flight', 'scheduled'))),
    CONSTRAINT ck_deliveries_due_at CHECK ((due_at IS NOT NULL) = (status = 'scheduled')),
    CONSTRAINT ck_deliveries_worker_id CHECK ((worker_id IS NOT NULL) = (status = 'in_flight'))
) PARTITION BY RANGE (finished_at);

-- The queue is the partition of what has not finished.
CREATE TABLE webhooks.deliveries_queue PARTITION OF webhooks.deliveries
    FOR VALUES FROM ('infinity') TO (MAXVALUE)
    WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0,
          autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
          autovacuum_vacuum_insert_scale_factor = 0,
          autovacuum_vacuum_insert_threshold = 100000,
          autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
          vacuum_truncate = off);
CREATE INDEX ix_deliveries_queue_pending
    ON webhooks.deliveries_queue (shard, endpoint_id, priority, id) WHERE status = 'pending';
CREATE INDEX ix_deliveries_queue_scheduled
    ON webhooks.deliveries_queue (due_at) WHERE status = 'scheduled';
CREATE INDEX ix_deliveries_queue_scheduled_endpoint
    ON webhooks.deliveries_queue (endpoint_id, due_at) WHERE status = 'scheduled';
CREATE INDEX ix_deliveries_queue_worker
    ON webhooks.deliveries_queue (worker_id) WHERE status = 'in_flight';
CREATE INDEX ix_deliveries_queue_in_flight
    ON webhooks.deliveries_queue (shard, endpoint_id) WHERE status = 'in_flight';
CREATE INDEX ix_deliveries_queue_event ON webhooks.deliveries_queue (event_id);

CREATE TABLE webhooks.attempts (
    shard smallint NOT NULL,
    delivery_id uuid NOT NULL,
    number integer NOT NULL,
    tenant_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    trigger text NOT NULL,
    outcome text NOT NULL
        CONSTRAINT ck_attempts_outcome CHECK (outcome IN ('delivered', 'failed')),
    error_class text,
    detail text,
    status_code smallint,
    url text,
    peer text,
    request_headers json,
    response_headers json,
    response_body bytea,
    truncated boolean NOT NULL DEFAULT false,
    dns_ms real,
    connect_ms real,
    tls_ms real,
    first_byte_ms real,
    total_ms real,
    worker_id uuid,
    started_at timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_attempts PRIMARY KEY (delivery_id, number, shard, recorded_at)
) PARTITION BY RANGE (recorded_at);

-- Make one day's partition of events, deliveries or attempts. Answers whether
-- it was missing. CREATE ... PARTITION OF would wait for every open emit, so the
-- table is made alone and attached, which waits for none of them.
CREATE FUNCTION webhooks.make_partition(parent text, day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = webhooks, pg_temp
AS $$
DECLARE
    child text := format('%s_%s', parent, to_char(day, 'YYYYMMDD'));
    first timestamptz := day::timestamp AT TIME ZONE 'UTC';
    next timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
    bounds text;
BEGIN
    IF parent NOT IN ('events', 'deliveries', 'attempts') THEN
        RAISE EXCEPTION 'parent: % is not partitioned by day', parent;
    END IF;
    IF to_regclass('webhooks.' || child) IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('webhooks.make_partition', 0));
    IF to_regclass('webhooks.' || child) IS NOT NULL THEN
        RETURN false;
    END IF;

    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS '
                   'INCLUDING STORAGE)', child, parent);
    IF parent = 'deliveries' THEN
        EXECUTE format('CREATE INDEX %I ON %I (finished_at, id)', child || '_list', child);
        EXECUTE format('CREATE INDEX %I ON %I (endpoint_id, finished_at, id)',
                       child || '_endpoint', child);
        EXECUTE format('CREATE INDEX %I ON %I (status, finished_at, id) '
                       'WHERE status <> ''delivered''', child || '_failed', child);
        EXECUTE format('CREATE INDEX %I ON %I (event_id)', child || '_event', child);
    END IF;
    bounds := CASE parent
        WHEN 'events' THEN format('FROM (%L) TO (%L)', uuid7_floor(first), uuid7_floor(next))
        ELSE format('FROM (%L) TO (%L)', first, next)
    END;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES %s', parent, child, bounds);
    RETURN true;
END $$;

-- Make what is missing of today and the days ahead; answers how many were made.
CREATE FUNCTION webhooks.make_partitions(days integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = webhooks, pg_temp
AS $$
    SELECT count(*) FILTER (WHERE make_partition(
        parent, (clock_timestamp() AT TIME ZONE 'UTC')::date + ahead))::integer
    FROM unnest(ARRAY['events', 'deliveries', 'attempts']) AS parent,
         generate_series(0, least(days, 60)) AS ahead
$$;

SELECT webhooks.make_partitions(14);
