"""Settings: how they are declared, filled and checked; who has some declares them (`JobSettings`: `stream`)."""
