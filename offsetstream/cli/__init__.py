"""The `offsetstream` command: thin commands over what the other packages do, printing through an Output."""
