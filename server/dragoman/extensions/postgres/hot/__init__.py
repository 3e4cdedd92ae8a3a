"""The optimized path of appends: group commit, one statement per batch."""
