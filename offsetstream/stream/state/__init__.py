"""The state tables: what records make of them, and how they are written."""
