"""Clients of the network, volume, image and identity services; they turn the services' JSON into values of `moorage.model`.

The clients do not depend on one another.  All of them send their calls through `http`, over a socket or directly into an embedded service.
"""
