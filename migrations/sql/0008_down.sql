DROP TABLE webhooks.catalog;
-- For producers in this database. SQLSTATEs: WH001 unknown tenant, WH002 the
-- idempotency key was used with another body, WH003 bad event type, WH004 bad
-- payload, WH005 bad idempotency key. One test for all of them, because each
-- expression is prepared anew in each transaction.
CREATE OR REPLACE FUNCTION webhooks.emit_bytes(
    tenant text, type text, payload bytea, idempotency_key text DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = webhooks, pg_temp
AS $$
DECLARE
    v_tenant_id uuid;
    v_valid boolean;
    v_accepted record;
BEGIN
    SELECT t.id INTO v_tenant_id FROM tenants t WHERE t.key = emit_bytes.tenant;
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

    v_accepted := accept(v_tenant_id, type, payload, idempotency_key);
    IF v_accepted.verdict = 'conflict' THEN
        RAISE EXCEPTION 'idempotency_key: % was used with another type or payload',
            idempotency_key USING ERRCODE = 'WH002';
    END IF;
    RETURN v_accepted.id;
END $$;
ALTER TABLE webhooks.tenants DROP unknown_event_types;
ALTER TABLE webhooks.event_types DROP schema, DROP example, DROP archived_at, DROP updated_at;
