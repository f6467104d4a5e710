"""The console proxy: it carries bytes between a browser's WebSocket and the socket on which a host gives a console."""
