DROP TABLE webhooks.failure_groups;
DROP TABLE webhooks.delivery_counts;
DROP FUNCTION webhooks.add_counts;
