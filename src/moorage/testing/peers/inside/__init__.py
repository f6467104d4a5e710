"""Scripts for the interpreter of `.venv-real`; nothing here is imported by Moorage."""
