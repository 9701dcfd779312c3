-- Fan-outs too large for the emitting transaction, and a cheaper emit.

-- One row holds exactly the endpoints that matched when the event was accepted. Workers make
-- their deliveries in chunks (webhooks/fanouts.py) and delete the row with the last of them.
-- As long as it is there, its event must not be dropped: deliveries of it are still to come.
DROP TABLE webhooks.fanouts;
CREATE TABLE webhooks.fanouts (
    shard smallint NOT NULL,
    tenant_id uuid NOT NULL,
    event_id uuid NOT NULL,
    event_type text NOT NULL,
    endpoint_ids uuid[] NOT NULL,
    -- How many of them, from the first, have their delivery.
    expanded integer NOT NULL DEFAULT 0,
    -- A tenant's oldest first, and which tenants have any.
    CONSTRAINT pk_fanouts PRIMARY KEY (tenant_id, event_id, shard)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- Ids do not compress. Out of line, they are not written again when the row moves on.
ALTER TABLE webhooks.fanouts ALTER endpoint_ids SET STORAGE EXTERNAL;

DROP FUNCTION webhooks.patterns_of;

-- It runs as its caller: emit_bytes, which is the owner then, or the web process. Every
-- name is qualified, so that no search_path has to be set at each call.
CREATE OR REPLACE FUNCTION webhooks.accept(
    p_tenant_id uuid, p_type text, p_payload bytea, p_key text DEFAULT NULL,
    OUT id uuid, OUT deliveries integer, OUT verdict text)
LANGUAGE plpgsql SECURITY INVOKER
AS $$
DECLARE
    v_shard smallint := webhooks.shard_of(p_tenant_id);
    v_words text[] := string_to_array(p_type, '.');
    v_patterns text[] := ARRAY[p_type, '*'];
    v_endpoints uuid[];
    v_hash bytea;
    v_stored webhooks.idempotency_keys;
BEGIN
    IF octet_length(p_payload) > 16777216 THEN
        RAISE EXCEPTION 'payload: % bytes are too many, 16777216 are the most',
            octet_length(p_payload) USING ERRCODE = 'WH004';
    END IF;
    -- 'a.b.c' matches the patterns a.b.c, *, a.* and a.b.*. A loop, because PostgreSQL plans
    -- a query over the words anew at each call.
    FOR n IN 1 .. cardinality(v_words) - 1 LOOP
        v_patterns := v_patterns || (array_to_string(v_words[1:n], '.') || '.*');
    END LOOP;
    id := webhooks.uuid7();
    v_endpoints := ARRAY(
        SELECT s.endpoint_id
        FROM webhooks.subscriptions s JOIN webhooks.endpoints e ON e.id = s.endpoint_id
        WHERE s.tenant_id = p_tenant_id AND s.pattern = ANY (v_patterns)
          AND e.deleted_at IS NULL);
    -- An endpoint can match by two patterns. Sorting one alone would cost as much as finding it.
    deliveries := cardinality(v_endpoints);
    IF deliveries > 1 THEN
        v_endpoints := ARRAY(SELECT DISTINCT endpoint_id FROM unnest(v_endpoints) AS endpoint_id
                             ORDER BY endpoint_id);
        deliveries := cardinality(v_endpoints);
    END IF;
    verdict := 'accepted';

    IF p_key IS NOT NULL THEN
        v_hash := sha256(convert_to(p_type, 'UTF8') || '\x00'::bytea || p_payload);
        INSERT INTO webhooks.idempotency_keys AS k
            (shard, tenant_id, scope, key, body_hash, answer, expires_at)
        VALUES (v_shard, p_tenant_id, 'emit', p_key, v_hash,
                json_build_object('id', id, 'deliveries', deliveries)::text,
                clock_timestamp() + interval '24 hours')
        ON CONFLICT (shard, tenant_id, scope, key) DO UPDATE
            SET body_hash = excluded.body_hash, answer = excluded.answer,
                expires_at = excluded.expires_at
            WHERE k.expires_at <= clock_timestamp();
        IF NOT FOUND THEN
            -- A new statement sees what the transaction we waited for committed.
            SELECT * INTO STRICT v_stored FROM webhooks.idempotency_keys k
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
                   || to_char(webhooks.uuid7_time(id) AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NULL THEN
        PERFORM webhooks.make_partition(
            'events', (webhooks.uuid7_time(id) AT TIME ZONE 'UTC')::date);
    END IF;
    INSERT INTO webhooks.events (shard, id, tenant_id, type, payload, created_at)
    VALUES (v_shard, id, p_tenant_id, p_type, p_payload, clock_timestamp());
    IF deliveries <= 500 THEN
        INSERT INTO webhooks.deliveries_queue
            (shard, tenant_id, event_id, endpoint_id, event_type)
        SELECT v_shard, p_tenant_id, accept.id, unnest(v_endpoints), p_type;
    ELSE
        INSERT INTO webhooks.fanouts (shard, tenant_id, event_id, event_type, endpoint_ids)
        VALUES (v_shard, p_tenant_id, id, p_type, v_endpoints);
    END IF;
END $$;

-- Raise what is wrong with an emit that is not valid: see emit_bytes.
CREATE FUNCTION webhooks.refuse_emit(
    tenant text, tenant_id uuid, type text, idempotency_key text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF tenant_id IS NULL THEN
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
    RAISE EXCEPTION 'payload: it is not JSON in UTF-8; give a JSON text' USING ERRCODE = 'WH004';
END $$;

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

REVOKE EXECUTE ON FUNCTION webhooks.refuse_emit FROM PUBLIC;
