-- In the order of a claim, which runs all the time: otherwise each would wait for the other.
LOCK TABLE webhooks.lanes, webhooks.endpoints, webhooks.signing_secrets
    IN ACCESS EXCLUSIVE MODE;

-- How an endpoint is signed for and what else is sent to it, and what the engine needs to
-- tell a throttle from the breaker.
ALTER TABLE webhooks.endpoints
    -- Names of signing schemes, in the order in which their headers are sent.
    ADD schemes text[] NOT NULL DEFAULT '{standard}'
        CONSTRAINT ck_endpoints_schemes CHECK (cardinality(schemes) BETWEEN 1 AND 8),
    -- Its own request headers: an encrypted JSON list of [name, value].
    ADD headers text,
    -- Certificates (PEM) that its server's must be signed with, instead of the usual ones.
    ADD ca_pem text,
    -- The URL for which the owner has proved that he wants to be sent to.
    ADD proven_url text,
    -- As the API has it: a slower one could not be told from none.
    DROP CONSTRAINT ck_endpoints_rate_limit,
    ADD CONSTRAINT ck_endpoints_rate_limit CHECK (rate_limit BETWEEN 0.001 AND 100000);

ALTER TABLE webhooks.signing_secrets
    ADD kind text NOT NULL DEFAULT 'hmac'
        CONSTRAINT ck_signing_secrets_kind CHECK (kind IN ('hmac', 'ed25519', 'text')),
    -- Of an ed25519 key: what receivers verify with.
    ADD public_key bytea
        CONSTRAINT ck_signing_secrets_public_key
            CHECK ((public_key IS NOT NULL) = (kind = 'ed25519')),
    -- Taken back at once, not replaced: nobody may go on trusting it.
    ADD revoked boolean NOT NULL DEFAULT false;

ALTER TABLE webhooks.lanes
    -- Until when the receiver wants a pause; open_at is never before it.
    ADD throttle_until timestamptz NOT NULL DEFAULT '-infinity',
    -- When a refused address last counted: answers of one look-up count once.
    ADD blocked_at timestamptz;

-- Which keys of the keyring are in use: a start asks, and a start is no time to read a table.
CREATE INDEX ix_signing_secrets_key_id ON webhooks.signing_secrets
    ((CASE WHEN starts_with(ciphertext, 'v1:') THEN left(split_part(ciphertext, ':', 2), 32) END),
     id);
CREATE INDEX ix_endpoints_headers_key_id ON webhooks.endpoints
    ((CASE WHEN starts_with(headers, 'v1:') THEN left(split_part(headers, ':', 2), 32) END), id)
    WHERE headers IS NOT NULL;
