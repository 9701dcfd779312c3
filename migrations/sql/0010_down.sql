UPDATE webhooks.events SET payload = '' WHERE payload IS NULL;
ALTER TABLE webhooks.events ALTER payload SET NOT NULL;
ALTER TABLE webhooks.tenants DROP payload_days, DROP payloads_gone_until;
DROP TABLE webhooks.retired_days;
CREATE OR REPLACE FUNCTION webhooks.refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END $$;
