-- A large fan-out that is still open is expanded here: nobody would do it afterwards.
INSERT INTO webhooks.deliveries_queue (shard, tenant_id, event_id, endpoint_id, event_type)
SELECT f.shard, f.tenant_id, f.event_id, endpoint_id, f.event_type
FROM webhooks.fanouts f,
     unnest(f.endpoint_ids) WITH ORDINALITY AS matched (endpoint_id, n)
WHERE n > f.expanded;
DROP TABLE webhooks.fanouts;
CREATE TABLE webhooks.fanouts (
    shard smallint NOT NULL,
    event_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    event_type text NOT NULL,
    after_endpoint_id uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_fanouts PRIMARY KEY (shard, event_id)
);

-- 'a.b.c' matches the patterns a.b.c, a.b.*, a.* and *.
CREATE OR REPLACE FUNCTION webhooks.patterns_of(type text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
    SELECT ARRAY[type, '*'] || ARRAY(
        SELECT array_to_string(parts[1:n], '.') || '.*'
        FROM string_to_array(type, '.') AS parts,
             generate_series(1, cardinality(parts) - 1) AS n)
$$;

CREATE OR REPLACE FUNCTION webhooks.accept(
    p_tenant_id uuid, p_type text, p_payload bytea, p_key text DEFAULT NULL,
    OUT id uuid, OUT deliveries integer, OUT verdict text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = webhooks, pg_temp
AS $$
DECLARE
    v_shard smallint := shard_of(p_tenant_id);
    v_now timestamptz := clock_timestamp();
    v_endpoints uuid[];
    v_hash bytea;
    v_stored idempotency_keys;
BEGIN
    IF octet_length(p_payload) > 16777216 THEN
        RAISE EXCEPTION 'payload: % bytes are too many, 16777216 are the most',
            octet_length(p_payload) USING ERRCODE = 'WH004';
    END IF;
    id := uuid7();
    v_endpoints := ARRAY(
        SELECT DISTINCT s.endpoint_id
        FROM subscriptions s JOIN endpoints e ON e.id = s.endpoint_id
        WHERE s.tenant_id = p_tenant_id AND s.pattern = ANY (patterns_of(p_type))
          AND e.deleted_at IS NULL);
    deliveries := cardinality(v_endpoints);
    verdict := 'accepted';

    IF p_key IS NOT NULL THEN
        v_hash := sha256(convert_to(p_type, 'UTF8') || '\x00'::bytea || p_payload);
        INSERT INTO idempotency_keys AS k
            (shard, tenant_id, scope, key, body_hash, answer, expires_at)
        VALUES (v_shard, p_tenant_id, 'emit', p_key, v_hash,
                json_build_object('id', id, 'deliveries', deliveries)::text,
                v_now + interval '24 hours')
        ON CONFLICT (shard, tenant_id, scope, key) DO UPDATE
            SET body_hash = excluded.body_hash, answer = excluded.answer,
                expires_at = excluded.expires_at
            WHERE k.expires_at <= v_now;
        IF NOT FOUND THEN
            -- A new statement sees what the transaction we waited for committed.
            SELECT * INTO STRICT v_stored FROM idempotency_keys k
            WHERE k.shard = v_shard AND k.tenant_id = p_tenant_id
              AND k.scope = 'emit' AND k.key = p_key;
            id := (v_stored.answer::json ->> 'id')::uuid;
            deliveries := (v_stored.answer::json ->> 'deliveries')::integer;
            verdict := CASE WHEN v_stored.body_hash = v_hash
                            THEN 'duplicate' ELSE 'conflict' END;
            RETURN;
        END IF;
    END IF;

    IF to_regclass('webhooks.events_'
                   || to_char(uuid7_time(id) AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NULL THEN
        PERFORM make_partition('events', (uuid7_time(id) AT TIME ZONE 'UTC')::date);
    END IF;
    INSERT INTO events (shard, id, tenant_id, type, payload, created_at)
    VALUES (v_shard, id, p_tenant_id, p_type, p_payload, v_now);
    INSERT INTO deliveries_queue (shard, tenant_id, event_id, endpoint_id, event_type)
    SELECT v_shard, p_tenant_id, accept.id, endpoint_id, p_type
    FROM unnest(v_endpoints) AS endpoint_id;
END $$;

-- For producers in this database. SQLSTATEs: WH001 unknown tenant, WH002 the
-- idempotency key was used with another body, WH003 bad event type, WH004 bad
-- payload, WH005 bad idempotency key.
CREATE OR REPLACE FUNCTION webhooks.emit_bytes(
    tenant text, type text, payload bytea, idempotency_key text DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = webhooks, pg_temp
AS $$
DECLARE
    v_tenant_id uuid;
    v_accepted record;
BEGIN
    SELECT t.id INTO v_tenant_id FROM tenants t WHERE t.key = emit_bytes.tenant;
    IF v_tenant_id IS NULL THEN
        RAISE EXCEPTION 'tenant: % does not exist; create it first', coalesce(tenant, 'NULL')
            USING ERRCODE = 'WH001';
    END IF;
    IF type IS NULL OR length(type) > 255 OR type !~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$' THEN
        RAISE EXCEPTION 'type: % is not dot-separated words of A-Z a-z 0-9 _ - of at most '
            '255 characters', coalesce(left(type, 300), 'NULL') USING ERRCODE = 'WH003';
    END IF;
    IF idempotency_key IS NOT NULL AND (length(idempotency_key) > 255
            OR btrim(idempotency_key) = '' OR idempotency_key ~ '[[:cntrl:]]') THEN
        RAISE EXCEPTION 'idempotency_key: give 1 to 255 characters, not all blank and none of '
            'them a control character' USING ERRCODE = 'WH005';
    END IF;
    BEGIN
        PERFORM convert_from(payload, 'UTF8')::json;
    EXCEPTION WHEN data_exception OR statement_too_complex THEN
        payload := NULL;
    END;
    IF payload IS NULL THEN
        RAISE EXCEPTION 'payload: it is not JSON in UTF-8; give a JSON text' USING ERRCODE = 'WH004';
    END IF;

    v_accepted := accept(v_tenant_id, type, payload, idempotency_key);
    IF v_accepted.verdict = 'conflict' THEN
        RAISE EXCEPTION 'idempotency_key: % was used with another type or payload',
            idempotency_key USING ERRCODE = 'WH002';
    END IF;
    RETURN v_accepted.id;
END $$;

DROP FUNCTION webhooks.refuse_emit;
