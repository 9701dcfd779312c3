ALTER TABLE webhooks.api_keys DROP scopes, DROP expires_at, DROP created_by;
