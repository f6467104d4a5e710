"""Small stand-ins for the services, each speaking the HTTP dialect of the service it stands for."""
