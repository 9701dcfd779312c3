DROP TABLE webhooks.replays;
