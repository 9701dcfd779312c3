-- What people edit and read: tenants, endpoints, subscriptions, keys, users.

-- The first instant that a version 7 id can carry: bounds of a day's partition.
CREATE FUNCTION webhooks.uuid7_floor(at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0')
            || repeat('0', 20))::uuid
$$;

CREATE FUNCTION webhooks.uuid7_time(id uuid) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT to_timestamp(
        ('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint / 1000.0)
$$;

-- Which of 64 shards a tenant's hot rows belong to. One PostgreSQL uses it only
-- as the first part of the lane order; a distributed one would place rows by it.
CREATE FUNCTION webhooks.shard_of(tenant_id uuid) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$ SELECT (uuid_hash_extended(tenant_id, 0) & 63)::smallint $$;

CREATE TABLE webhooks.tenants (
    id uuid CONSTRAINT pk_tenants PRIMARY KEY DEFAULT webhooks.uuid7(),
    key text NOT NULL CONSTRAINT uq_tenants_key UNIQUE
        CONSTRAINT ck_tenants_key CHECK (key ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO webhooks.tenants (key, name) VALUES ('default', 'Default');

CREATE TABLE webhooks.event_types (
    id uuid CONSTRAINT pk_event_types PRIMARY KEY DEFAULT webhooks.uuid7(),
    tenant_id uuid NOT NULL
        CONSTRAINT fk_event_types_tenant_id_tenants REFERENCES webhooks.tenants,
    name text NOT NULL,
    description text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT uq_event_types_tenant_id_name UNIQUE (tenant_id, name)
);

CREATE TABLE webhooks.endpoints (
    id uuid CONSTRAINT pk_endpoints PRIMARY KEY DEFAULT webhooks.uuid7(),
    tenant_id uuid NOT NULL
        CONSTRAINT fk_endpoints_tenant_id_tenants REFERENCES webhooks.tenants,
    url text NOT NULL,
    description text NOT NULL DEFAULT '',
    status text NOT NULL DEFAULT 'active'
        CONSTRAINT ck_endpoints_status CHECK (status IN ('active', 'paused', 'disabled')),
    status_reason text,
    status_changed_at timestamptz NOT NULL DEFAULT now(),
    timeout_s real NOT NULL
        CONSTRAINT ck_endpoints_timeout_s CHECK (timeout_s BETWEEN 1 AND 60),
    max_in_flight integer NOT NULL
        CONSTRAINT ck_endpoints_max_in_flight CHECK (max_in_flight BETWEEN 1 AND 1000),
    retry_policy jsonb
        CONSTRAINT ck_endpoints_retry_policy CHECK (jsonb_typeof(retry_policy) = 'object'),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    deleted_at timestamptz,
    CONSTRAINT uq_endpoints_tenant_id_id UNIQUE (tenant_id, id)
);

CREATE TABLE webhooks.signing_secrets (
    id uuid CONSTRAINT pk_signing_secrets PRIMARY KEY DEFAULT webhooks.uuid7(),
    tenant_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    ciphertext text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    valid_until timestamptz NOT NULL DEFAULT 'infinity',
    CONSTRAINT fk_signing_secrets_tenant_id_endpoint_id_endpoints
        FOREIGN KEY (tenant_id, endpoint_id) REFERENCES webhooks.endpoints (tenant_id, id)
);
CREATE INDEX ix_signing_secrets_endpoint_id ON webhooks.signing_secrets (endpoint_id);

CREATE TABLE webhooks.subscriptions (
    id uuid CONSTRAINT pk_subscriptions PRIMARY KEY DEFAULT webhooks.uuid7(),
    tenant_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    pattern text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT uq_subscriptions_endpoint_id_pattern UNIQUE (endpoint_id, pattern),
    CONSTRAINT fk_subscriptions_tenant_id_endpoint_id_endpoints
        FOREIGN KEY (tenant_id, endpoint_id) REFERENCES webhooks.endpoints (tenant_id, id)
);
-- Emit looks up the event type's own prefixes here; no pattern is ever scanned.
CREATE INDEX ix_subscriptions_tenant_id_pattern ON webhooks.subscriptions (tenant_id, pattern)
    INCLUDE (endpoint_id);

CREATE TABLE webhooks.api_keys (
    id uuid CONSTRAINT pk_api_keys PRIMARY KEY DEFAULT webhooks.uuid7(),
    tenant_id uuid
        CONSTRAINT fk_api_keys_tenant_id_tenants REFERENCES webhooks.tenants,
    name text NOT NULL,
    public_id text NOT NULL CONSTRAINT uq_api_keys_public_id UNIQUE,
    key_hash bytea NOT NULL,
    last_four text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz,
    revoked_at timestamptz
);
COMMENT ON COLUMN webhooks.api_keys.tenant_id IS 'NULL: the key is bound to all tenants';

CREATE TABLE webhooks.users (
    id uuid CONSTRAINT pk_users PRIMARY KEY DEFAULT webhooks.uuid7(),
    username text NOT NULL CONSTRAINT uq_users_username UNIQUE,
    password_hash text NOT NULL,
    role text NOT NULL
        CONSTRAINT ck_users_role CHECK (role IN ('owner', 'admin', 'developer', 'viewer')),
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE webhooks.sessions (
    token_hash bytea CONSTRAINT pk_sessions PRIMARY KEY,
    user_id uuid NOT NULL
        CONSTRAINT fk_sessions_user_id_users REFERENCES webhooks.users ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    address text,
    user_agent text
);
CREATE INDEX ix_sessions_user_id ON webhooks.sessions (user_id);

CREATE TABLE webhooks.audit_log (
    id uuid CONSTRAINT pk_audit_log PRIMARY KEY DEFAULT webhooks.uuid7(),
    tenant_id uuid,
    at timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL,
    action text NOT NULL,
    object text NOT NULL,
    detail jsonb NOT NULL DEFAULT '{}'
);
CREATE FUNCTION webhooks.refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END $$;
CREATE TRIGGER audit_log_is_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON webhooks.audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION webhooks.refuse_change();

-- A maintenance job runs where its row's lease was taken; a session lock would
-- not survive a transaction pooler.
CREATE TABLE webhooks.job_leases (
    job text CONSTRAINT pk_job_leases PRIMARY KEY,
    holder uuid NOT NULL,
    leased_until timestamptz NOT NULL
);
