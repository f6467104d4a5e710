"""Where packages are joined: the only package that reads the configuration and builds concrete objects."""
