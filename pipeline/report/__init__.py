"""Results to text: table, JSON, CSV, markdown."""
