"""Where rooms are joined: the only place that reads configuration and builds concrete things."""
