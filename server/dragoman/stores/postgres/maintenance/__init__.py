"""What keeps a PostgreSQL store small and lawful: compaction and erasure."""
