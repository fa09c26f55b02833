"""What is checked on a node before rendezvous, usable by any launcher (seed 001)."""
