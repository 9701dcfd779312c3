ALTER TABLE webhooks.lanes DROP host;
DROP FUNCTION webhooks.host_of;
