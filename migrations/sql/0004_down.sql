ALTER TABLE webhooks.deliveries DROP given_back;
