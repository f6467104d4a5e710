"""Steps told in more than one story, and what they share."""
