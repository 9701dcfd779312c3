-- What an event type's payloads look like, and which types a tenant takes.
ALTER TABLE webhooks.event_types
    -- JSON texts as they were given: numbers and the order of names are kept.
    ADD schema text,
    ADD example text,
    ADD archived_at timestamptz,
    ADD updated_at timestamptz NOT NULL DEFAULT now();

ALTER TABLE webhooks.tenants
    ADD unknown_event_types text NOT NULL DEFAULT 'accept'
        CONSTRAINT ck_tenants_unknown_event_types
            CHECK (unknown_event_types IN ('accept', 'refuse'));

-- Grows with each change of the above, so that a process sees cheaply that there was one.
CREATE TABLE webhooks.catalog (
    one_row boolean CONSTRAINT pk_catalog PRIMARY KEY DEFAULT true
        CONSTRAINT ck_catalog_one_row CHECK (one_row),
    version bigint NOT NULL DEFAULT 1
);
INSERT INTO webhooks.catalog DEFAULT VALUES;

-- For producers in this database: as before, and event types that a tenant refuses, or that
-- are ours, are refused (WH003). A schema is not checked here.
CREATE OR REPLACE FUNCTION webhooks.emit_bytes(
    tenant text, type text, payload bytea, idempotency_key text DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = webhooks, pg_temp
AS $$
DECLARE
    v_tenant_id uuid;
    v_refuses boolean;
    v_valid boolean;
    v_accepted record;
BEGIN
    SELECT t.id, t.unknown_event_types = 'refuse' INTO v_tenant_id, v_refuses
    FROM tenants t WHERE t.key = emit_bytes.tenant;
    BEGIN
        v_valid := v_tenant_id IS NOT NULL
            AND length(type) <= 255 AND type ~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$'
            AND (idempotency_key IS NULL OR (length(idempotency_key) <= 255
                AND btrim(idempotency_key) <> '' AND idempotency_key !~ '[[:cntrl:]]'))
            AND convert_from(payload, 'UTF8')::json IS NOT NULL;
    EXCEPTION WHEN data_exception OR statement_too_complex THEN
        v_valid := false;
    END;
    IF v_valid IS NOT TRUE THEN
        PERFORM refuse_emit(tenant, v_tenant_id, type, idempotency_key);
    END IF;
    IF starts_with(type, 'webhooks.') THEN
        RAISE EXCEPTION 'type: % is reserved; choose one that does not begin with webhooks.', type
            USING ERRCODE = 'WH003';
    END IF;
    IF v_refuses AND NOT EXISTS (
        SELECT FROM event_types k WHERE k.tenant_id = v_tenant_id AND k.name = emit_bytes.type
    ) THEN
        RAISE EXCEPTION 'type: % is not an event type of this tenant, which refuses others', type
            USING ERRCODE = 'WH003';
    END IF;

    v_accepted := accept(v_tenant_id, type, payload, idempotency_key);
    IF v_accepted.verdict = 'conflict' THEN
        RAISE EXCEPTION 'idempotency_key: % was used with another type or payload',
            idempotency_key USING ERRCODE = 'WH002';
    END IF;
    RETURN v_accepted.id;
END $$;
