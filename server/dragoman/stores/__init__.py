"""Floor 3: where tasks are kept. Each store is one folder, and none knows another."""
