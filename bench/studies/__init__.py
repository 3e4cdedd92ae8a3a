"""Stand-alone studies, each run by its own command."""
