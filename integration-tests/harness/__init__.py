"""What the integration tests share: a server process, a client, and transformers as the judge."""
