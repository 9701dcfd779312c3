-- The numbers of claims that were given back: each was used, none left an attempt. NULL for
-- nearly every row, and then not a byte. With the attempts' numbers, the one in flight and
-- these, every number from 1 to attempts is accounted for.
ALTER TABLE webhooks.deliveries ADD given_back integer[];
