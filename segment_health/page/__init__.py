"""The status page: a picture of the cluster for people, served beside a running publisher or written to a file."""
