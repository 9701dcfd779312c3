ALTER TABLE webhooks.lanes
    DROP rate_limit, DROP rate_burst, DROP rate_open_at, DROP strikes, DROP broken_s,
    DROP failed_at, DROP last_error, DROP last_status_code, DROP last_delivery_id,
    DROP warned_at, DROP throttled_at;
ALTER TABLE webhooks.endpoints DROP rate_limit, DROP rate_burst, DROP status_evidence;
ALTER TABLE webhooks.tenants DROP retry_policy;
