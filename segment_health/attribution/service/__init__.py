"""The attribution service: takes logs of failed cycles over HTTP, and tells what is to become of their jobs."""
