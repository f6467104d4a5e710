"""Pure thought: which host would be best?  Looks at the World, touches nothing, knows no clock."""
