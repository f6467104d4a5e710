"""Images made from a server: from its disk, or from the volumes it boots from."""
