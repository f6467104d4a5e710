"""Small stand-ins for the neighbours, each speaking the HTTP dialect of the service it stands for."""
