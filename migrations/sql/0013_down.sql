DROP TABLE webhooks.buckets;
