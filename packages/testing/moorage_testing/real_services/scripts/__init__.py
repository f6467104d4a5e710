"""Scripts for the interpreter of the real services' environment; nothing here is imported by Moorage."""
