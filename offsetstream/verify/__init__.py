"""The tables compared with what the live cluster answers."""
