"""Services: what we need of the network, volume, image and identity services, in our words.

They do not know one another; each speaks through `http`, the one way out, over a socket or straight into an embedded service.
"""
