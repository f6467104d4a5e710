"""Steps told in more than one saga, and what they share."""
