"""What keeps a SQLite store small and lawful: compaction, erasure, backup."""
