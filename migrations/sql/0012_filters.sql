-- A SQL/JSON path predicate; NULL: every event of the pattern.
ALTER TABLE webhooks.subscriptions ADD filter text;

-- Whether a payload passes; NULL: that cannot be told, such as of a payload with \u0000 in it,
-- which jsonb does not hold. Never raises: an emit does not fail for what a receiver wants.
CREATE FUNCTION webhooks.passes(filter text, payload bytea) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN coalesce(jsonb_path_match(convert_from(payload, 'UTF8')::jsonb, filter::jsonpath,
                                     silent => true), false);
EXCEPTION WHEN data_exception OR program_limit_exceeded OR syntax_error THEN
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION webhooks.passes FROM PUBLIC;

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
    v_filtered bigint;
    v_failed uuid[] := '{}';
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
    -- What is ours is wanted by its name alone, not by everything.
    IF starts_with(p_type, 'webhooks.') THEN
        v_patterns := array_remove(v_patterns, '*');
    END IF;
    SELECT coalesce(array_agg(s.endpoint_id) FILTER (WHERE s.filter IS NULL), '{}'), count(s.filter)
    INTO v_endpoints, v_filtered
    FROM webhooks.subscriptions s JOIN webhooks.endpoints e ON e.id = s.endpoint_id
    WHERE s.tenant_id = p_tenant_id AND s.pattern = ANY (v_patterns) AND e.deleted_at IS NULL;
    IF v_filtered > 0 THEN
        SELECT v_endpoints || coalesce(array_agg(f.endpoint_id) FILTER (WHERE f.verdict), '{}'),
               coalesce(array_agg(DISTINCT f.endpoint_id) FILTER (WHERE f.verdict IS NULL), '{}')
        INTO v_endpoints, v_failed
        FROM (
            SELECT s.endpoint_id, webhooks.passes(s.filter, p_payload) AS verdict
            FROM webhooks.subscriptions s JOIN webhooks.endpoints e ON e.id = s.endpoint_id
            WHERE s.tenant_id = p_tenant_id AND s.pattern = ANY (v_patterns)
              AND e.deleted_at IS NULL AND s.filter IS NOT NULL) f;
        v_failed := ARRAY(SELECT unnest(v_failed) EXCEPT SELECT unnest(v_endpoints));
    END IF;
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
    -- Visible, and replayable: nothing that might have been wanted is silently left out.
    IF cardinality(v_failed) > 0 THEN
        INSERT INTO webhooks.deliveries
            (shard, tenant_id, event_id, endpoint_id, event_type, status, reason, finished_at)
        SELECT v_shard, p_tenant_id, accept.id, unnest(v_failed), p_type, 'cancelled',
               'filter_error', now();
    END IF;
END $$;
