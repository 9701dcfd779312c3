-- Token buckets of the whole installation. What is full again needs no row.
CREATE TABLE webhooks.buckets (
    name text CONSTRAINT pk_buckets PRIMARY KEY,
    tokens double precision NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
CREATE INDEX ix_buckets_at ON webhooks.buckets (at);
