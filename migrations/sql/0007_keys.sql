-- What a key may do, and until when. Those that there are could do all.
ALTER TABLE webhooks.api_keys
    ADD scopes text[] NOT NULL DEFAULT '{admin}'
        CONSTRAINT ck_api_keys_scopes CHECK (cardinality(scopes) BETWEEN 1 AND 20),
    ADD expires_at timestamptz,
    ADD created_by text NOT NULL DEFAULT '';

-- Until when the first request with a key may still be at it; NULL: its answer is there.
ALTER TABLE webhooks.idempotency_keys ADD working_until timestamptz;
