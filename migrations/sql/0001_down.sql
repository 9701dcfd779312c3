DROP FUNCTION webhooks.emit, webhooks.emit_bytes, webhooks.accept, webhooks.patterns_of,
    webhooks.make_partitions, webhooks.make_partition;
DROP TABLE webhooks.attempts, webhooks.deliveries, webhooks.events, webhooks.fanouts,
    webhooks.idempotency_keys, webhooks.lanes, webhooks.workers, webhooks.job_leases,
    webhooks.audit_log, webhooks.sessions, webhooks.users, webhooks.api_keys,
    webhooks.subscriptions, webhooks.signing_secrets, webhooks.endpoints,
    webhooks.event_types, webhooks.tenants;
DROP FUNCTION webhooks.refuse_change, webhooks.shard_of, webhooks.uuid7_time,
    webhooks.uuid7_floor, webhooks.uuid7;
