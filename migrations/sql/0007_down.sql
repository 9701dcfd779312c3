ALTER TABLE webhooks.api_keys DROP scopes, DROP expires_at, DROP created_by;
ALTER TABLE webhooks.idempotency_keys DROP working_until;
