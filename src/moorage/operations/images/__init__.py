"""Images made of a server: of its disk, or of the volumes it boots from."""
