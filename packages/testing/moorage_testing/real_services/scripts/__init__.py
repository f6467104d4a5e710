"""Scripts for the interpreter of the real neighbours' environment; nothing here is imported by Moorage."""
