"""Report of a run: tables, targets, and plot."""
