LOCK TABLE webhooks.lanes, webhooks.endpoints, webhooks.signing_secrets
    IN ACCESS EXCLUSIVE MODE;
DROP INDEX webhooks.ix_signing_secrets_key_id, webhooks.ix_endpoints_headers_key_id;
ALTER TABLE webhooks.lanes DROP throttle_until, DROP blocked_at;
ALTER TABLE webhooks.signing_secrets DROP kind, DROP public_key, DROP revoked;
ALTER TABLE webhooks.endpoints
    DROP schemes, DROP headers, DROP ca_pem, DROP proven_url,
    DROP CONSTRAINT ck_endpoints_rate_limit,
    ADD CONSTRAINT ck_endpoints_rate_limit CHECK (rate_limit > 0 AND rate_limit <= 100000);
