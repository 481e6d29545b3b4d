"""What a coordinator does with each record that it meets, and the groups and offsets that come of it."""
